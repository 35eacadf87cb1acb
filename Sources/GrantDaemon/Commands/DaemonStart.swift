import Glibc
import GrantCommandLine
import GrantSystem

/// What a daemon reports to the process that has started it: the other half of `BackgroundStart`.
enum DaemonStart {
    /// The socket to a starter that waits for this process's end, which alone closes it.
    private final class Starter: Sendable {
        let socket: UnixSocket
        init(_ socket: consuming UnixSocket) { self.socket = socket }
    }
    private static let starter = Lock<Starter?>(nil)

    /// Waits for `go`, which brings standard error. Returns false if it will not come.
    ///
    /// The descriptor stays open under a high number, because its end tells the starter that this process ends. The kernel closes the
    /// descriptors of an ending process from the highest number on (task_work_run), so this one comes before those that take long.
    static func mayGo(_ descriptor: Int32) -> Bool {
        let last = fcntl(descriptor, F_DUPFD_CLOEXEC, 900)
        if last >= 0 { close(descriptor) } else { _ = fcntl(descriptor, F_SETFD, FD_CLOEXEC) }
        let starter = Starter(UnixSocket(connected: FileDescriptor(owning: last >= 0 ? last : descriptor)))
        self.starter.withLock { $0 = starter }
        guard let errors = try? starter.socket.receive(descriptors: 1, deadline: .max) else { return false }
        dup2(errors[0], Terminal.standardError)
        close(errors[0])
        return true
    }

    /// The command line for which this daemon was started.
    static func takeCommand() -> String? {
        defer { unsetenv(BackgroundStart.commandVariable) }
        return getenv(BackgroundStart.commandVariable).map { String(cString: $0) }
    }

    /// Reports that the mount exists and will be served soon.
    static func announceAttached(on descriptor: Int32) { _ = write(descriptor, [BackgroundStart.attachedMark], 1) }

    /// Changes to the root directory, so that the starter's can be unmounted. Call it once every relative path has been resolved.
    static func settle() { _ = chdir("/") }

    /// Redirects standard error to /dev/null, so that a reader of the starter's pipe does not wait for the daemon.
    static func silence() {
        let null = open("/dev/null", O_RDWR | O_CLOEXEC)
        if null >= 0 {
            dup2(null, Terminal.standardError)
            close(null)
        }
    }

    /// Reports that its mount answers, and redirects standard error. `more`: additional bytes for the starter.
    static func announce(on descriptor: Int32, _ more: [UInt8] = []) {
        silence()
        // SIGPIPE would end a daemon whose starter was killed. It is then as good as started.
        let before = signal(SIGPIPE, SIG_IGN)
        _ = write(descriptor, BackgroundStart.word + more, BackgroundStart.word.count + more.count)
        signal(SIGPIPE, before)
        close(descriptor)
    }
}
