import GrantAdministration
import GrantSystem

/// The claims that wait in daemons: one thread waits for all of them.
///
/// Locking: one lock around the list, held for an access.
final class DaemonWaits: Sendable {
    static let process = DaemonWaits()

    private struct Entry {
        let pending: PendingClaim
        let descriptors: [Int32]
        let until: Int64?
        let resume: @Sendable (_ isReady: Bool) -> Void
    }

    private struct State {
        var entries: [UInt64: Entry] = [:]
        var last: UInt64 = 0
        var isServed = false
        /// Made with the first wait.
        var wakening: Wakening?
    }

    private let state = Lock(State())

    /// How many claims wait.
    var count: Int { state.withLock { $0.entries.count } }

    /// Calls `resume` once, when the claim has something to do or the wait is cancelled. `resume` must not take long.
    func wait(
        for pending: PendingClaim, _ cancellation: Cancellation?, _ resume: @escaping @Sendable (_ isReady: Bool) -> Void
    ) throws(CoordinationError) {
        let registration = Lock<UInt64?>(nil)
        let entry = Entry(pending: pending, descriptors: pending.descriptors, until: pending.wakeUp) { isReady in
            if let number = registration.withLock({ $0 }) { cancellation?.forget(number) }
            resume(isReady)
        }
        let number: UInt64
        do throws(Errno) {
            number = try add(entry)
        } catch {
            throw .failed(error.description)
        }
        let registered = cancellation?.whenCancelled { [self] in end(number) }
        registration.withLock { $0 = registered }
        // It may have ended before the registration was known.
        if let registered, state.withLock({ $0.entries[number] == nil }) { cancellation?.forget(registered) }
    }

    private func add(_ entry: Entry) throws(Errno) -> UInt64 {
        let (number, needsThread, wakening) = try state.withLock { state throws(Errno) in
            let wakening: Wakening
            if let made = state.wakening { wakening = made } else { wakening = try Wakening() }
            state.wakening = wakening
            state.last += 1
            state.entries[state.last] = entry
            defer { state.isServed = true }
            return (state.last, !state.isServed, wakening)
        }
        guard needsThread else {
            wakening.wake()
            return number
        }
        do throws(Errno) {
            try WorkerThread.start("claims") { self.serve(wakening) }.detach()
        } catch {
            let others = state.withLock { state in
                state.isServed = false
                state.entries[number] = nil
                defer { state.entries = [:] }
                return Array(state.entries.values)
            }
            // They look again, and find that there is no thread for them either.
            for other in others { other.resume(true) }
            throw error
        }
        return number
    }

    /// Ends a wait that was cancelled.
    private func end(_ number: UInt64) { state.withLock { $0.entries.removeValue(forKey: number) }?.resume(false) }

    private func serve(_ wakening: Wakening) {
        while true {
            let entries = state.withLock { state in
                if state.entries.isEmpty { state.isServed = false }
                return Array(state.entries)
            }
            if entries.isEmpty { return }
            var set = PollSet()
            set.add(wakening.descriptor)
            for (_, entry) in entries { for descriptor in entry.descriptors { set.add(descriptor) } }
            // If it fails, each claim looks for itself.
            let hasFailed = (try? set.wait(until: entries.compactMap(\.value.until).min())) == nil
            wakening.drain()
            let now = Clock.monotonic
            var place = 1
            for (number, entry) in entries {
                let isReady = hasFailed || entry.descriptors.indices.contains { set.isReadable(place + $0) }
                place += entry.descriptors.count
                guard isReady || entry.until.map({ $0 <= now }) ?? false else { continue }
                state.withLock { $0.entries.removeValue(forKey: number) }?.resume(isReady)
            }
        }
    }
}
