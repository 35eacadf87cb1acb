import Foundation
import GrantSystem

/// Threads for work that may wait for a filesystem, a daemon or a presenter.
///
/// A few threads do all work that does not wait for long. While all of them wait, more are started, one after the other, so work that
/// others wait for never queues behind them for ever. Dispatch has a limited number of threads, which would starve.
///
/// Locking: one lock around the queue, held for an access.
final class WaitingThreads: Sendable {
    static let process = WaitingThreads()

    typealias Job = @Sendable () -> Void

    private struct State {
        var jobs: [Job] = []
        /// How many of `jobs` were taken.
        var head = 0
        var taken: UInt64 = 0
        var threads = 0
        var idle = 0
        var isWatched = false

        var isEmpty: Bool { head == jobs.count }

        mutating func next() -> Job? {
            if isEmpty { return nil }
            let job = jobs[head]
            (head, taken) = (head + 1, taken &+ 1)
            if head == jobs.count || head > 1024 {
                jobs.removeFirst(head)
                head = 0
            }
            return job
        }
    }

    private let state = Lock(State())
    private let work = Semaphore()

    /// How many threads are started at once for queued work.
    private static let ready = 4
    /// How long the queue makes no progress before one more is started: milliseconds.
    private static let patience = 10
    /// How long a thread without work stays: seconds.
    private static let leisure = 2.0

    /// Runs the job on one of the threads, after those before it have begun. Throws EAGAIN if there is no thread and none can be started.
    func run(_ job: @escaping Job) throws(Errno) {
        let (needsThread, isAlone) = state.withLock { state in
            state.jobs.append(job)
            let needsThread = state.jobs.count - state.head > state.idle && state.threads < Self.ready
            if needsThread { state.threads += 1 }
            return (needsThread, state.threads == 1)
        }
        if needsThread {
            do throws(Errno) {
                try start()
            } catch {
                if isAlone {
                    state.withLock { state in
                        state.jobs.removeAll()
                        state.head = 0
                    }
                    throw error
                }
            }
        } else {
            work.post()
            watch()
        }
    }

    /// The caller has counted the thread.
    private func start() throws(Errno) {
        do throws(Errno) {
            try WorkerThread.start("coordinate") { self.loop() }.detach()
        } catch {
            state.withLock { $0.threads -= 1 }
            throw error
        }
    }

    private func loop() {
        while true {
            if let job = state.withLock({ state in state.next() }) {
                job()
                continue
            }
            state.withLock { $0.idle += 1 }
            let hasWork = work.wait(until: Clock.deadline(seconds: Self.leisure))
            let isOver = state.withLock { state in
                state.idle -= 1
                let isOver = !hasWork && state.isEmpty
                if isOver { state.threads -= 1 }
                return isOver
            }
            if isOver { return }
        }
    }

    /// Starts one more thread if the queue makes no progress for a while.
    private func watch() {
        let taken = state.withLock { state -> UInt64? in
            guard !state.isWatched, !state.isEmpty else { return nil }
            state.isWatched = true
            return state.taken
        }
        guard let taken else { return }
        DispatchQueue.global().asyncAfter(deadline: .now() + .milliseconds(Self.patience)) { [self] in
            let isStuck = state.withLock { state in
                state.isWatched = false
                let isStuck = !state.isEmpty && state.taken == taken && state.idle == 0
                if isStuck { state.threads += 1 }
                return isStuck
            }
            if isStuck { try? start() }
            watch()
        }
    }
}

/// Jobs that are done one after the other, on the waiting threads.
///
/// Locking: one lock around the queue, held for an access.
final class SerialWork: Sendable {
    private let state = Lock((jobs: [WaitingThreads.Job](), isServed: false))

    func add(_ job: @escaping WaitingThreads.Job) {
        let isFirst = state.withLock { state in
            state.jobs.append(job)
            defer { state.isServed = true }
            return !state.isServed
        }
        guard isFirst else { return }
        // Without a thread it is done here.
        if (try? WaitingThreads.process.run({ self.serve() })) == nil { serve() }
    }

    private func serve() {
        while let job = next() { job() }
    }

    private func next() -> WaitingThreads.Job? {
        state.withLock { state in
            if state.jobs.isEmpty { state.isServed = false }
            return state.jobs.isEmpty ? nil : state.jobs.removeFirst()
        }
    }
}
