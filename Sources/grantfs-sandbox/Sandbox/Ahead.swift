import GrantSystem

/// A value that is computed on another thread before it is needed: a future.
final class Ahead<Value: Sendable>: Sendable {
    private let work: @Sendable () -> Value
    private let result = Lock<Value?>(nil)
    private let isDone = Semaphore()

    /// Starts the work. Without a thread, it runs when the value is read.
    init(_ work: @escaping @Sendable () -> Value) {
        self.work = work
        let thread = try? WorkerThread.start("ahead") { [result, isDone] in
            let value = work()
            result.withLock { $0 = value }
            isDone.post()
        }
        if let thread { thread.detach() } else { isDone.post() }
    }

    /// Waits for the value.
    var value: Value {
        isDone.wait()
        isDone.post()
        return result.withLock { $0 } ?? work()
    }
}
