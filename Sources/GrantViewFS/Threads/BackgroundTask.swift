import GrantSystem
import Synchronization

/// Runs a closure on a thread of its own and says when it is done. Where no thread can be made one of `ReserveThreads` does it as soon as it is
/// free; only where there are none, outside of a daemon, it is done here and now.
public final class BackgroundTask: Sendable {
    private let done = Atomic<Bool>(false)

    /// `mayHang`: whether it may wait for a granted filesystem, or for what a program holds. Such tasks never take the last of the `ReserveThreads`.
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
