import GrantConfinement
import Glibc
import GrantSystem

/// Starts a sandbox on a thread that has left what the starter shares and no namespace separates. The command itself keeps it: its store may lie where the
/// session's keys are needed.
enum SandboxStarter {
    /// What `start` gives, a process. The thread stays until that has ended, because a sandbox ends with the thread that started it.
    static func start(hasNetwork: Bool, _ start: @escaping @Sendable () throws(Errno) -> Int32) throws(Errno) -> Int32 {
        let result = Lock<Result<Int32, Errno>?>(nil)
        let isStarted = Semaphore()
        let thread = try WorkerThread.start("sandbox") {
            // The filter of system calls keeps keys away in any case; this also keeps the kernel from looking there for the program. A user may have as many
            // keyrings as there are keys for one (200), so that it cannot be had is no failure.
            try? SharedResources.leaveSessionKeyring()
            // With a network of its own, there are none of others. A bwrap that needs its set-id bit could not work afterwards.
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
        guard geteuid() != 0, let path = ProgramSearch.path(of: SandboxProcess.program) else { return false }
        var status = stat()
        return stat(path, &status) == 0 && status.st_mode & S_ISUID != 0
    }
}
