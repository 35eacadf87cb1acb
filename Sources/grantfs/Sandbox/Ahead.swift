import GrantSystem

/// Work that is begun on another thread before its result is needed.
final class Ahead<Value: Sendable>: Sendable {
    private let work: @Sendable () -> Value
    private let result = Lock<Value?>(nil)
    private let isDone = Semaphore()

    /// Begins it. Where no thread can be had, it is done when the result is asked for.
    init(_ work: @escaping @Sendable () -> Value) {
        self.work = work
        let thread = try? WorkerThread.start("ahead") { [result, isDone] in
            let value = work()
            result.withLock { $0 = value }
            isDone.post()
        }
        if let thread { thread.detach() } else { isDone.post() }
    }

    /// Waits for the result.
    var value: Value {
        isDone.wait()
        isDone.post()
        return result.withLock { $0 } ?? work()
    }
}
