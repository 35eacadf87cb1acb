import GrantAdministration
import GrantSystem

/// Lets a few claims at a time ask the daemons, so that thousands of them need no thread each, and a daemon answers each in time.
///
/// Locking: one lock around the queue, held for an access.
final class AskingTurns: Sendable {
    static let process = AskingTurns()

    private struct Job {
        let run: @Sendable () -> Void
        let fail: @Sendable (CoordinationError) -> Void
    }

    private struct State {
        var asking = 0
        var queue: [Job] = []
        /// How many of `queue` have had their turn.
        var head = 0

        /// Returns the next job. If there is none, one fewer asks.
        mutating func next() -> Job? {
            if head == queue.count {
                asking -= 1
                return nil
            }
            let next = queue[head]
            head += 1
            if head == queue.count || head > 1024 {
                queue.removeFirst(head)
                head = 0
            }
            return next
        }
    }

    private let state = Lock(State())
    /// How many ask at a time.
    private static let limit = 16

    /// Runs `ask` in its turn, then `done` after it, each on a thread that may wait.
    func take<Value: Sendable>(
        _ ask: @escaping @Sendable () throws(CoordinationError) -> Value,
        _ done: @escaping @Sendable (Result<Value, CoordinationError>) -> Void
    ) {
        let run: @Sendable () -> Void = {
            let result = Result { () throws(CoordinationError) in try ask() }
            // What follows may wait for presenters, which may have to ask as well.
            if (try? WaitingThreads.process.run { done(result) }) == nil { done(result) }
        }
        let job = Job(run: run) { done(.failure($0)) }
        let isFirst = state.withLock { state in
            if state.asking == Self.limit {
                state.queue.append(job)
                return false
            }
            state.asking += 1
            return true
        }
        if isFirst { start(job) }
    }

    /// Starts a thread for a job. Without one it fails, and so do those that wait for its turn.
    private func start(_ first: Job) {
        var job: Job? = first
        while let one = job {
            do throws(Errno) {
                return try WaitingThreads.process.run { self.serve(one) }
            } catch {
                one.fail(.failed(error.description))
            }
            job = state.withLock { $0.next() }
        }
    }

    private func serve(_ first: Job) {
        var job: Job? = first
        while let one = job {
            one.run()
            job = state.withLock { $0.next() }
        }
    }
}
