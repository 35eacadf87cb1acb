import GrantSystem
import Synchronization

/// Runs a closure on a thread of its own and tells when it is done.
///
/// If no thread can be made, one of `ReserveThreads` runs it as soon as it is free. Outside of a
/// daemon there are no such threads, and the closure runs immediately on the caller's thread.
public final class BackgroundTask: Sendable {
    private let done = Atomic<Bool>(false)

    /// Starts the closure.
    ///
    /// - Parameter mayHang: Whether it may wait for a granted filesystem, or for a lock that a
    ///   program holds. Such tasks never take the last of the `ReserveThreads`.
    public init(mayHang: Bool = false, _ body: @escaping @Sendable () -> Void) {
        let run: @Sendable () -> Void = { [self] in
            body()
            done.store(true, ordering: .releasing)
        }
        do throws(Errno) {
            try WorkerThread.start("grantfs-task", run).detach()
        } catch {
            if !ReserveThreads.run(mayHang: mayHang, run) { run() }
        }
    }

    public var isDone: Bool { done.load(ordering: .acquiring) }
}
