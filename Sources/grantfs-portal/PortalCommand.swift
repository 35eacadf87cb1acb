import Glibc
import GrantAdministration
import GrantCommandLine
import GrantModel
import GrantPortal
import GrantStore
import GrantSystem

/// `grantfs portal`
enum PortalCommand {
    static let bodies: [String: CommandBody] = ["portal": run]

    static func run(_ arguments: ParsedArguments) throws(GrantError) -> Int32 {
        let store = try GrantStore(directory: try arguments.storeDirectory(), create: true)
        let mountpoint = try place(arguments)
        signal(SIGPIPE, SIG_IGN)
        _ = DescriptorLimit.raise()
        var signals = sigset_t()
        sigemptyset(&signals)
        for number in [SIGTERM, SIGINT, SIGHUP] { sigaddset(&signals, number) }
        // Before there are threads, so that none of them gets one.
        pthread_sigmask(SIG_BLOCK, &signals, nil)
        SystemLog.open(isForeground: true)
        let mount = PortalMount(store: store, mountpoint: mountpoint)
        let portal = DocumentPortal(
            GrantAdministrator.command(store),
            mount: DocumentPortal.Mount(
                path: mountpoint.path, join: { () throws(GrantError) in try mount.join() },
                start: { () throws(GrantError) in try mount.start() }, end: { mount.end() }, hasEnded: { mount.hasEnded }),
            say: { level, text in SystemLog.write(level, "portal: " + Terminal.visible(text)) })
        let waited = signals
        do throws(Errno) {
            try WorkerThread.start("portal-signals") {
                var signals = waited
                while sigwaitinfo(&signals, nil) < 0, errno == EINTR {}
                ServiceManager.stopping()
                portal.end()
            }.detach()
        } catch {
            throw GrantError(.system, "no thread could be started", cause: error.description)
        }
        try portal.run(replaces: arguments.has("replace")) { ServiceManager.ready("documents are shown at \(mountpoint.shown)") }
        return 0
    }

    /// The place that was named, or the session's, made when it is missing.
    private static func place(_ arguments: ParsedArguments) throws(GrantError) -> Mountpoint {
        guard let path = arguments.bytes("mountpoint"), !path.isEmpty else { return try SessionPlace.mountpoint() }
        if withCString(path, { mkdir($0, 0o700) }) != 0, errno != EEXIST {
            throw GrantError(
                .mountFailed, "\(String(decoding: path, as: UTF8.self)) cannot be made", cause: Errno(errno).description)
        }
        return try Mountpoint(path)
    }
}
