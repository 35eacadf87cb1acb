import Glibc
import GrantAdministration
import GrantCommandLine
import GrantCommandSupport
import GrantModel
import GrantStore
import GrantSystem
import GrantWeb

/// `grantfs volume-plugin`
enum VolumePluginCommand {
    static let bodies: [String: CommandBody] = ["volume-plugin": run]
    /// Where engines look for plugins.
    static let standardSocket = "/run/docker/plugins/grantfs.sock"

    static func run(_ arguments: ParsedArguments) throws(GrantError) -> Int32 {
        let store = try GrantStore(directory: try arguments.storeDirectory(), create: true)
        signal(SIGPIPE, SIG_IGN)
        _ = DescriptorLimit.raise()
        // Before there are threads, and before programs are started.
        setenv("SWIFT_BACKTRACE", "enable=no", 0)
        let given = try takeSocket()
        var signals = sigset_t()
        sigemptyset(&signals)
        for number in [SIGTERM, SIGINT, SIGHUP] { sigaddset(&signals, number) }
        pthread_sigmask(SIG_BLOCK, &signals, nil)
        SystemLog.open(isForeground: true)
        let lock = try VolumePluginCommand.lock(store)
        let answers = PluginAnswers(volumes: try Volumes(store), user: geteuid())
        let path = arguments.bytes("socket") ?? Array(standardSocket.utf8)
        let socket: Int32
        var name: SocketName?
        if let given { socket = given } else { socket = try listen(at: path, &name) }
        var limits = WebServer.Limits()
        (limits.connections, limits.body, limits.seconds, limits.mayWait) = (512, 65_536, 300, true)
        let server = try WebServer(
            ListeningSocket(FileDescriptor(owning: socket)), certificate: nil, key: nil, authorities: nil, limits: limits,
            answer: answers.answer)
        ServiceManager.ready("volumes are served")
        ServiceManager.leave()
        while sigwaitinfo(&signals, nil) < 0, errno == EINTR {}
        name?.remove()
        withExtendedLifetime(server) {}
        _ = consume lock
        return 0
    }

    /// The socket that systemd listens on (sd_listen_fds(3)), or nil. Programs that are started do not get its variables.
    private static func takeSocket() throws(GrantError) -> Int32? {
        let (process, count) = (getenv("LISTEN_PID"), getenv("LISTEN_FDS"))
        let isMeant = process.flatMap { Int32(String(cString: $0)) } == getpid()
        let number = count.flatMap { Int32(String(cString: $0)) } ?? 0
        for name in ["LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"] { unsetenv(name) }
        guard isMeant, number > 0 else { return nil }
        var listens: Int32 = 0
        var size = socklen_t(MemoryLayout<Int32>.size)
        guard number == 1, getsockopt(3, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) == 0, listens != 0 else {
            throw GrantError(.usage, "systemd has given no listening socket", advice: "ListenStream= in grantfs-volumes.socket names one")
        }
        _ = fcntl(3, F_SETFD, FD_CLOEXEC)
        return 3
    }

    /// Calls in two processes would not follow each other.
    private static func lock(_ store: GrantStore) throws(GrantError) -> FileLock {
        do throws(Errno) {
            return try FileLock.take(store.runDirectory + "/volumes.lock", create: true)
        } catch {
            throw GrantError(
                .alreadyExists, "volumes of the store \(store.directory) cannot be served",
                cause: error == Errno(EWOULDBLOCK) ? "another volume-plugin serves them" : error.description)
        }
    }

    private static func listen(at given: [UInt8], _ name: inout SocketName?) throws(GrantError) -> Int32 {
        let path = CanonicalPath.absolute(given)
        // Docker makes them when it looks for plugins.
        if given.elementsEqual(standardSocket.utf8) { for place in ["/run/docker", "/run/docker/plugins"] { mkdir(place, 0o755) } }
        do throws(Errno) {
            var made = try SocketName(path)
            let socket = try made.listen(backlog: 512).release().release()
            name = consume made
            return socket
        } catch {
            throw GrantError(.system, "nothing can be served at \(VisibleText.of(path))", cause: error.description)
        }
    }
}
