import GrantConfinement
import Glibc
import GrantSystem

/// Starts a sandbox on a thread that has left resources which no namespace separates. The command itself keeps them: its store may need
/// the keys of the session.
enum SandboxStarter {
    /// Runs `start`, which returns a process. The thread lives until that has ended, because a sandbox ends with the thread that
    /// started it.
    static func start(hasNetwork: Bool, _ start: @escaping @Sendable () throws(Errno) -> Int32) throws(Errno) -> Int32 {
        let result = Lock<Result<Int32, Errno>?>(nil)
        let isStarted = Semaphore()
        let thread = try WorkerThread.start("sandbox") {
            // The system call filter denies access to keys anyway. This also keeps the kernel from
            // searching them on the program's behalf. Keyrings count against a user's quota of keys
            // (200), so failure is not an error.
            try? SharedResources.leaveSessionKeyring()
            // A network namespace of its own has no others' sockets. A bwrap that needs its set-uid bit could not work afterwards.
            if hasNetwork, !needsSetID { try? SharedResources.leaveAbstractSockets() }
            do throws(Errno) {
                let child = try start()
                result.withLock { $0 = .success(child) }
                isStarted.post()
                ChildProcess.awaitEnd(child)
            } catch {
                result.withLock { $0 = .failure(error) }
                isStarted.post()
            }
        }
        thread.detach()
        isStarted.wait()
        guard let result = result.withLock({ $0 }) else { throw Errno(ECHILD) }
        return try result.get()
    }

    private static var needsSetID: Bool {
        guard geteuid() != 0, let path = ProgramSearch.bubblewrap else { return false }
        var status = stat()
        return stat(path, &status) == 0 && status.st_mode & S_ISUID != 0
    }
}
