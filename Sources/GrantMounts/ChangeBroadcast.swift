import Glibc
import GrantControl
import GrantModel
import GrantStore
import GrantSystem

/// Tells the mounts of a store about a change, and collects their answers.
package struct ChangeBroadcast: Sendable {
    let store: GrantStore
    /// Whether something is taken away altogether. Then even a mount whose daemon has died counts while a process holds something of
    /// it.
    let withdraws: Bool
    /// Whether to kill processes that hold something of a mount whose daemon has died, and then count
    /// the mount as confirmed. Also kills those that keep a live mount waiting.
    let endsHolders: Bool
    /// Makes the request for each mount. Time is in milliseconds.
    package var request: @Sendable (_ grants: [GrantID], _ time: UInt32) -> ControlRequest = { .apply(grants: $0, timeoutMilliseconds: $1) }

    package init(store: GrantStore, withdraws: Bool, endsHolders: Bool = false) {
        (self.store, self.withdraws, self.endsHolders) = (store, withdraws, endsHolders)
    }

    private enum Answer: Sendable {
        /// `blocking`: the processes that keep the mount from confirming. `ended`: those that were killed.
        case outcomes([GrantOutcome], milliseconds: Double, blocking: BlockingProcesses, ended: [Holder])
        case none(reason: String, milliseconds: Double)
        /// The daemon has ended, and no process holds anything of its mount.
        case dead
        /// The daemon has ended. Cached data stays readable as long as a process holds it. `ended`:
        /// the processes that were killed.
        case left(DeadMount?, ended: [Holder])
    }

    /// Asks every mount of the grants' views concurrently, and waits `seconds` for them. `progress` is called on this thread if that
    /// takes longer than a moment.
    package func broadcast(
        _ grants: [Grant], timeout seconds: Double, progress: ((CoordinationProgress) -> Void)? = nil
    ) throws(GrantError) -> [GrantChange] {
        let views = Set(grants.map(\.view))
        let deadline = Clock.deadline(seconds: seconds)
        if !withdraws { try awaitOwnMounts(of: views, until: min(deadline, Clock.deadline(seconds: 2))) }
        let records = try store.mounts().filter { views.contains(where: $0.shows) }
        let work: @Sendable () -> [Answer] = {
            let answers = inParallel(records) { record in ask(record, grants.filter { record.shows($0.view) }.map(\.id), seconds) }
            return reapDead(records, answers, until: deadline)
        }
        let answers = progress.map { waiting(for: work, records, grants.map(\.id), $0) } ?? work()
        return grants.map { grant in
            let mounts = zip(records, answers).compactMap { record, answer in
                record.shows(grant.view) ? confirmation(of: grant, record, answer) : nil
            }
            return GrantChange(grant: grant, mounts: mounts)
        }
    }

    /// Waits until each of the views that has a mountpoint of its own (`ShownViews.mountpoints`) is mounted there: the first grant of a view
    /// causes that mount, which takes a moment.
    private func awaitOwnMounts(of views: Set<ViewName>, until deadline: Int64) throws(GrantError) {
        repeat {
            let records = try store.mounts()
            let wanted = records.flatMap { record in
                views.compactMap { record.shown.mountpoint(of: $0).map { CanonicalPath.join(record.mountpoint, $0.bytes) } }
            }
            let isMounted = wanted.allSatisfy { place in
                records.contains { $0.mountpoint == place && $0.connection != nil && $0.process.isRunning }
            }
            if isMounted { return }
            usleep(10_000)
        } while Clock.monotonic < deadline
    }

    /// Runs `work` on another thread, and reports the mounts' progress meanwhile.
    private func waiting(
        for work: @escaping @Sendable () -> [Answer], _ records: [MountRecord], _ grants: [GrantID],
        _ show: (CoordinationProgress) -> Void
    ) -> [Answer] {
        let (answers, isDone) = (Lock<[Answer]>([]), Semaphore())
        let thread = try? WorkerThread.start("announce") {
            let given = work()
            answers.withLock { $0 = given }
            isDone.post()
        }
        guard let thread else { return work() }
        // Most requests are done before a person could read a report.
        while !isDone.wait(until: Clock.monotonic + 200_000_000) {
            let states = inParallel(records) { record -> [GrantProgress] in
                let answer = Daemons.ask(record, .progress(grants: grants), of: store, deadline: Clock.deadline(seconds: 0.2))
                if case .success(.progress(let states)) = answer { return states }
                return []
            }
            if let progress = CoordinationProgress(states.flatMap { $0 }) { show(progress) }
        }
        thread.join()
        return answers.withLock { $0 }
    }

    /// Closes grants whose revocation could not be recorded. Returns how many mounts did so, and how many there are.
    func close(_ grants: [Grant], timeout seconds: Double) -> (done: Int, all: Int) {
        let views = Set(grants.map(\.view))
        guard let records = try? store.mounts().filter({ views.contains(where: $0.shows) }) else { return (0, 0) }
        let answers = inParallel(records) { record -> Bool? in
            let request = ControlRequest.shut(grants: grants.map(\.id), timeoutMilliseconds: UInt32(min(max(seconds * 1000, 1), 4e9)))
            switch Daemons.ask(record, request, of: store, deadline: Clock.deadline(seconds: seconds + 0.25)) {
            case .success(.applied(let outcomes)): return outcomes.allSatisfy(\.confirmed)
            case .failure(.dead): return nil
            default: return false
            }
        }
        let dead = zip(records, answers).filter { $1 == nil }.map(\.0)
        // An unknown state does not count as closed.
        let held = (try? store.deadMounts(of: dead, until: Clock.deadline(seconds: seconds)).count(where: \.isHeld)) ?? dead.count
        return (answers.count { $0 ?? true } - held, answers.count)
    }

    /// How often processes are killed and the daemon is asked again. It names a limited number of what they block.
    private static let killings = 2

    private func ask(_ record: MountRecord, _ grants: [GrantID], _ seconds: Double) -> Answer {
        let start = Clock.monotonic
        let elapsed = { Double(Clock.monotonic - start) / 1e6 }
        // Half of the time is left for the killing of processes.
        let patience = endsHolders ? seconds / 2 : seconds
        // A daemon that cannot finish in time reports its progress, which may take a moment longer.
        let asked = { (seconds: Double) in
            let wanted = request(grants, UInt32(min(max(seconds * 1000, 1), 4e9)))
            return Daemons.ask(record, wanted, of: store, deadline: Clock.deadline(seconds: seconds + 0.25))
        }
        switch asked(patience) {
        case .success(.applied(var outcomes)):
            var ended: [Holder] = []
            for _ in 0..<(endsHolders ? Self.killings : 0) where !outcomes.allSatisfy(\.confirmed) {
                let blocking = BlockingProcesses(outcomes, of: record, until: Clock.deadline(seconds: patience))
                let killed = blocking.kill(until: Clock.deadline(seconds: patience))
                ended += killed
                guard !killed.isEmpty, case .success(.applied(let after)) = asked(patience / Double(Self.killings)) else { break }
                outcomes = after
            }
            let blocking = BlockingProcesses(outcomes, of: record, until: Clock.deadline(seconds: 1))
            return .outcomes(outcomes, milliseconds: elapsed(), blocking: blocking, ended: ended)
        case .success(.failed(let reason)): return .none(reason: reason, milliseconds: elapsed())
        case .success(.done), .success(.status), .success(.located), .success(.metrics), .success(.progress), .success(.waits),
            .success(.questions):
            return .none(reason: "its daemon answered something else", milliseconds: elapsed())
        case .failure(.dead): return .dead
        case .failure(.unresponsive(let reason)): return .none(reason: reason, milliseconds: elapsed())
        }
    }

    private func confirmation(of grant: Grant, _ record: MountRecord, _ answer: Answer) -> MountConfirmation? {
        switch answer {
        case .dead:
            return nil
        case .left(let deadMounts, let ended):
            return MountConfirmation(
                mountpoint: record.mountpoint, pid: record.pid, confirmed: deadMounts?.isHeld != true, milliseconds: 0,
                reason: deadMounts?.explanation, isDead: true, holders: deadMounts?.holders ?? [], ended: ended,
                unseen: deadMounts?.unseen ?? [])
        case .none(let reason, let milliseconds):
            return MountConfirmation(
                mountpoint: record.mountpoint, pid: record.pid, confirmed: false, milliseconds: milliseconds, reason: reason)
        case .outcomes(let outcomes, let milliseconds, let blocking, let ended):
            guard let outcome = outcomes.first(where: { $0.grant == grant.id }) else {
                return MountConfirmation(
                    mountpoint: record.mountpoint, pid: record.pid, confirmed: false, milliseconds: milliseconds,
                    reason: "its daemon said nothing of this grant")
            }
            return MountConfirmation(
                mountpoint: record.mountpoint, pid: record.pid, confirmed: outcome.confirmed, milliseconds: outcome.milliseconds,
                drained: outcome.drained, flushedBytes: outcome.flushedBytes, invalidatedInodes: outcome.invalidatedInodes,
                pending: outcome.pending, unforgotten: outcome.unforgotten, processes: blocking.of(outcome),
                reason: outcome.confirmed ? nil : Self.reason(outcome, blocking), ended: ended)
        }
    }

    private static func reason(_ outcome: GrantOutcome, _ blocking: BlockingProcesses) -> String {
        if let starved = text(of: outcome.processes) {
            return "everything is refused, but \(starved) gets no processor to process an earlier answer"
        }
        guard let first = outcome.unforgotten.first else {
            return outcome.pending > 0 ? "everything is refused, but a change is still being carried out" : "it did not finish in time"
        }
        let more = outcome.unforgotten.count > 1 ? " and \(outcome.unforgotten.count - 1) more" : ""
        let name = String(decoding: first, as: UTF8.self)
        let kept = "everything is refused but what the kernel keeps of “\(name)”\(more): "
        if let listing = text(of: blocking.of(outcome)) { return kept + "\(listing) copies a listing to memory that does not arrive" }
        return kept + "a program holds one of the kernel's locks there"
    }

    /// The first process and how many more there are, or nil if there is none.
    private static func text(of processes: [Int32]) -> String? {
        guard let pid = processes.first else { return nil }
        let more = processes.count > 1 ? ", and \(processes.count - 1) more," : ""
        return "process \(pid) (\(VisibleText.of(ProcessName.of(pid))))\(more)"
    }

    /// Removes the records of mounts whose daemon has ended and of which nothing is left. For the others, finds who holds something of
    /// them.
    private func reapDead(_ records: [MountRecord], _ answers: [Answer], until deadline: Int64) -> [Answer] {
        let dead = zip(records, answers).compactMap { record, answer in
            if case .dead = answer { return record }
            return nil
        }
        if dead.isEmpty { return answers }
        // It has begun a moment ago, and may have hundreds of thousands of files to do.
        let working = withdraws ? WorkingKeeper.await(dead, until: deadline) : [:]
        // The search runs even if the live mounts have used up the time. It takes a fraction of a
        // second on most machines.
        let last = max(deadline, Clock.deadline(seconds: 2))
        guard let deadMounts = try? store.deadMounts(of: dead, until: last) else {
            return zip(records, answers).map { record, answer in
                dead.contains(record)
                    ? .none(reason: "the store cannot be read, so the rest of the dead mount is unknown", milliseconds: 0) : answer
            }
        }
        guard withdraws else { return answers }
        return zip(records, answers).map { record, answer in
            if let keeper = working[record.id] {
                return .none(
                    reason:
                        "its daemon has ended, and process \(keeper) has not finished to invalidate the kernel's cache",
                    milliseconds: 0)
            }
            guard let left = deadMounts.first(where: { $0.record.id == record.id }), left.isHeld else { return answer }
            guard endsHolders else { return .left(left, ended: []) }
            // A process takes a moment to end, even if the live mounts have used up the time.
            let ended = left.endHolders(until: max(deadline, Clock.deadline(seconds: 2)))
            let rest = try? store.deadMounts(of: [record], until: max(deadline, Clock.deadline(seconds: 2)))
            return .left(rest.map { $0.first } ?? left, ended: ended)
        }
    }
}

/// Calls `body` for all items concurrently, on a thread each, and returns the results in order.
package func inParallel<Item: Sendable, Result: Sendable>(_ items: [Item], _ body: @escaping @Sendable (Item) -> Result) -> [Result] {
    if items.count == 1 { return [body(items[0])] }
    let results = Lock([Result?](repeating: nil, count: items.count))
    let threads = items.indices.map { index in
        let work: @Sendable () -> Void = {
            let result = body(items[index])
            results.withLock { $0[index] = result }
        }
        // Without a thread it runs here.
        guard let thread = try? WorkerThread.start("ask", work) else {
            work()
            return WorkerThread?.none
        }
        return thread
    }
    for thread in threads { thread?.join() }
    return results.withLock { $0.compactMap { $0 } }
}
