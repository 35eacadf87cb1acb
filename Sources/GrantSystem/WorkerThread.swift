import CGrantSystem
import Glibc

/// A POSIX thread for work that may block: Dispatch has few threads, which would starve.
public struct WorkerThread: @unchecked Sendable {
    // Safe to share: a pthread_t is a number, and only one caller joins it.
    private let thread: pthread_t

    private final class Start {
        let name: String
        let body: @Sendable () -> Void
        init(name: String, body: @escaping @Sendable () -> Void) {
            self.name = name
            self.body = body
        }
    }

    /// Starts a thread that runs `body` with all signals blocked.
    ///
    /// Only the main thread handles signals.
    ///
    /// - Parameter name: At most 15 bytes.
    public static func start(_ name: String, _ body: @escaping @Sendable () -> Void) throws(Errno) -> WorkerThread {
        let start = Unmanaged.passRetained(Start(name: name, body: body))
        var thread = pthread_t()
        var (all, before) = (sigset_t(), sigset_t())
        sigfillset(&all)
        pthread_sigmask(SIG_SETMASK, &all, &before)
        defer { pthread_sigmask(SIG_SETMASK, &before, nil) }
        let error = pthread_create(&thread, nil, runWorkerThread, start.toOpaque())
        if error != 0 {
            start.release()
            throw Errno(error)
        }
        return WorkerThread(thread: thread)
    }

    /// Waits for its end. Call either `join` or `detach`, once.
    public func join() { pthread_join(thread, nil) }
    public func detach() { pthread_detach(thread) }

    fileprivate static func run(_ start: UnsafeMutableRawPointer) {
        let start = Unmanaged<Start>.fromOpaque(start).takeRetainedValue()
        _ = clinux_set_thread_name(start.name)
        start.body()
    }
}

private func runWorkerThread(_ start: UnsafeMutableRawPointer?) -> UnsafeMutableRawPointer? {
    if let start { WorkerThread.run(start) }
    return nil
}
