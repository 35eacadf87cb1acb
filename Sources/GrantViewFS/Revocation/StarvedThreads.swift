import CGrantSystem
import Glibc
import GrantSystem
import Synchronization

/// Threads that have a reply but get no processor to process it.
///
/// Their own priority is low, beside programs that are always busy. Meanwhile they keep kernel
/// locks, such as the lock of a page.
///
/// They get a processor for a moment: all processors that they may use, and a higher priority. For
/// threads of other users that takes CAP_SYS_NICE.
///
/// Locking: its own, rank 2, held for a moment.
final class StarvedThreads: Sendable {
    private struct State {
        /// When threads were last given a processor, by `Clock.monotonic`.
        var last: Int64 = 0
        /// The processor time of threads when they were first found waiting.
        ///
        /// `since` is the time of that, by `Clock.monotonic`.
        var runtimes: [pid_t: (used: Int64, since: Int64)] = [:]
    }

    private struct Hastened {
        let thread: pid_t
        var before: clinux_scheduling
    }

    private let state = Lock(State())
    /// Whether the time of any thread is recorded.
    private let remembers = Atomic<Bool>(false)

    /// Nanoseconds of processor time after which a thread has processed its reply.
    ///
    /// Processing takes some microseconds.
    static let enoughRuntime: Int64 = 1_000_000
    /// The least interval between two runs, and the pause after which all records are discarded.
    ///
    /// In nanoseconds. Requests within the interval are ignored.
    private static let (interval, forgotten): (Int64, Int64) = (20_000_000, 1_000_000_000)
    /// The limit of threads in one run.
    private static let limit = 128
    /// How long threads have the lowest nice value, and each remaining one a real-time priority.
    ///
    /// In microseconds.
    private static let (moment, realtimeMoment) = (5_000, 1_000)
    private static let pause: UInt32 = 100

    /// The threads of `threads` that would run if they had a processor.
    static func waiting(_ threads: [pid_t]) -> [pid_t] { threads.filter { clinux_other_state($0) == runnable } }

    private static let runnable = CChar(bitPattern: UInt8(ascii: "R"))

    /// Gives a processor to threads that have had none since they were first seen.
    ///
    /// Only threads that wait for one get it. Returns after 133 ms at the latest, and nearly always
    /// after less than one.
    func run(_ threads: () -> [pid_t]) {
        let now = Clock.monotonic
        let isDue = state.withLock { state in
            guard now - state.last > Self.interval else { return false }
            if now - state.last > Self.forgotten { state.runtimes = [:] }
            state.last = now
            remembers.store(true, ordering: .relaxed)
            return true
        }
        if !isDue { return }
        let starved = starved(Self.waiting(threads()))
        if starved.isEmpty { return }
        // Otherwise one of them could keep this thread from restoring its priority.
        let own = Self.hasten(clinux_gettid(), realtime: false)
        defer { if let own { Self.restore(own) } }
        let hastened = starved.prefix(Self.limit).compactMap { Self.hasten($0, realtime: false) }
        wait(Self.moment, for: hastened.map(\.thread))
        for one in hastened { Self.restore(one) }
        for thread in self.starved(Self.waiting(hastened.map(\.thread))) {
            guard let one = Self.hasten(thread, realtime: true) else { continue }
            wait(Self.realtimeMoment, for: [thread])
            Self.restore(one)
        }
    }

    /// Records that a thread makes another call: it has processed its last reply and gets another.
    func begin(_ thread: pid_t) {
        if remembers.load(ordering: .relaxed) { state.withLock { $0.runtimes[thread] = nil } }
    }

    /// The threads without processor time since they were first seen with their last call.
    ///
    /// `nanoseconds`: how long ago that must be at least.
    func starved(_ threads: [pid_t], for nanoseconds: Int64 = 0) -> [pid_t] {
        let now = Clock.monotonic
        let runtimes = threads.map { (thread: $0, used: clinux_other_runtime($0)) }
        remembers.store(true, ordering: .relaxed)
        return state.withLock { state in
            runtimes.filter { thread, used in
                let first = state.runtimes[thread] ?? (used, now)
                state.runtimes[thread] = first
                return now - first.since >= nanoseconds && (used < 0 || used - first.used < Self.enoughRuntime)
            }
        }.map(\.thread)
    }

    /// Waits until all threads have processed their replies, or until the time is over.
    private func wait(_ microseconds: Int, for threads: [pid_t]) {
        let deadline = Clock.monotonic + Int64(truncatingIfNeeded: microseconds) * 1_000
        var rest = threads
        while !rest.isEmpty, Clock.monotonic < deadline {
            usleep(Self.pause)
            rest = starved(Self.waiting(rest))
        }
    }

    private static func hasten(_ thread: pid_t, realtime: Bool) -> Hastened? {
        var before = clinux_scheduling()
        return clinux_other_hasten(thread, realtime, &before) == 0 ? Hastened(thread: thread, before: before) : nil
    }

    private static func restore(_ hastened: Hastened) {
        var before = hastened.before
        clinux_other_restore(hastened.thread, &before)
    }
}

extension ViewFS {
    /// Gives a processor to waiting threads whose last call was in one of these scopes.
    func hastenCallers(in scopes: some Sequence<UInt32>) {
        starvedThreads.run { scopes.flatMap { lastCalls.callers(in: $0).map(\.thread) } }
    }

    /// Processes with threads that wait for a processor after a call in a scope. At most a few.
    func starvedProcesses(of scope: Scope) -> [Int32] {
        let waiting = StarvedThreads.waiting(lastCalls.callers(in: scope.id.rawValue).map(\.thread))
        // A program that computes is not starved, and may have the number of a thread that has
        // ended.
        let starved = starvedThreads.starved(waiting, for: 50_000_000)
        let processes = Set(starved.map { ProcessName.process(ofThread: $0) }).subtracting([getpid()])
        return Array(processes.sorted().prefix(Self.namedAtMost))
    }
}
