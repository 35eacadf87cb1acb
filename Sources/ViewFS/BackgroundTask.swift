import Glibc
import Synchronization

/// Runs a closure on a thread of its own and says when it is done.
public final class BackgroundTask: Sendable {
    private let body: @Sendable () -> Void
    private let done = Atomic<Bool>(false)

    public init(_ body: @escaping @Sendable () -> Void) {
        self.body = body
        var thread = pthread_t()
        let argument = Unmanaged.passRetained(self).toOpaque()
        let result = pthread_create(
            &thread, nil,
            { argument in
                let task = Unmanaged<BackgroundTask>.fromOpaque(argument!).takeRetainedValue()
                task.body()
                task.done.store(true, ordering: .releasing)
                return nil
            }, argument)
        if result == 0 {
            pthread_detach(thread)
        } else {
            // Without a thread it is done here and now.
            Unmanaged<BackgroundTask>.fromOpaque(argument).release()
            body()
            done.store(true, ordering: .releasing)
        }
    }

    public var isDone: Bool { done.load(ordering: .acquiring) }
}
