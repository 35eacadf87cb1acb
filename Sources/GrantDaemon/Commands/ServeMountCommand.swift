import Glibc
import GrantCommandLine
import GrantModel
import GrantMounts
import GrantStore
import GrantSystem

/// `grantfsd mount`: serves a mount, or starts the daemons of several views. `grantfs mount` has checked the words before.
enum ServeMountCommand {
    static func run(_ arguments: ParsedArguments) throws(GrantError) -> Int32 {
        let parser = try MountRequest.parser(arguments)
        // Before there are threads: with several the kernel has to wait for an RCU grace period to grow the descriptor table.
        DescriptorTable.grow()
        if let look = try arguments.text("look-fd").flatMap({ Int32($0) }) { DirectoryProbe.serve(descriptor: look) }
        // The store of another command exists already in most cases. It is opened while that
        // command gets ready.
        let goes = try arguments.text("go-fd").flatMap { Int32($0) }
        let early =
            goes == nil
            ? nil
            : try? GrantStore(
                directory: StoreLocation.directory(explicit: arguments.bytes("store")), create: false, survivesPowerLoss: false)
        if let goes, !DaemonStart.mayGo(goes) { return 1 }
        let request = try MountRequest(arguments, parser)
        var (shown, mountpoint) = (request.shown, request.mountpoint)
        if case .mountpoints = shown, !arguments.has("mountpoints") { return try mountSeparately(request, arguments) }

        let temporary = try arguments.text("temporary")
        let store =
            if let early {
                early
            } else {
                try GrantStore(directory: request.storeDirectory, create: true, survivesPowerLoss: temporary == nil)
            }
        if arguments.has("bound"), let view = shown.onlyView {
            let last = try store.grants(view: view).map(\.created).max()
            shown = .bound(view, until: last ?? Instant(nanoseconds: .min))
        }
        // Held until the mount answers or has failed.
        var turn: MountLock? = try mountpoint.lockForMounting(in: store)
        try mountpoint.prepare(for: shown, store: store, probe: .daemon, isTemporary: temporary != nil, below: try below(arguments)) {
            Terminal.note($0)
        }
        let ready = try arguments.text("ready-fd").flatMap { Int32($0) }
        if ready != nil { DaemonStart.settle() }
        return Daemon.run(
            store: store, shown: shown, mountpoint: mountpoint.path, options: request.options, isBackground: ready != nil,
            temporary: temporary, command: temporary == nil ? nil : DaemonStart.takeCommand(),
            attached: { if goes != nil, let ready { DaemonStart.announceAttached(on: ready) } }
        ) { error in
            turn.take()?.end()
            if let error {
                Terminal.report(error)
            } else if let ready {
                DaemonStart.announce(on: ready)
            }
        }
    }

    /// Mounts several views: this process starts daemons and serves no mount itself.
    private static func mountSeparately(_ request: MountRequest, _ arguments: ParsedArguments) throws(GrantError) -> Int32 {
        let mounts = ViewMounts(
            store: try GrantStore(directory: request.storeDirectory, create: true), shown: request.shown, mountpoint: request.mountpoint,
            options: request.options, viewOptions: try viewOptions(arguments))
        return mounts.run(ready: try settle(arguments))
    }

    private static func viewOptions(_ arguments: ParsedArguments) throws(GrantError) -> String {
        var lists: [String] = []
        for list in arguments.options["options"] ?? [] {
            let text = try ParsedArguments.text(list, "the value of -o")
            lists.append(MountOptionParser.removing(["views", "separate", "new"], from: text))
        }
        return lists.joined(separator: ",")
    }

    /// Becomes a process that starts daemons. Returns a function to call when they answer, or have
    /// failed.
    private static func settle(_ arguments: ParsedArguments) throws(GrantError) -> (GrantError?) -> Void {
        let ready = try arguments.text("ready-fd").flatMap { Int32($0) }
        if ready != nil {
            DaemonStart.settle()
            ServiceManager.leave()
        }
        SystemLog.open(isForeground: ready == nil)
        return { error in
            if let error {
                Terminal.report(error)
            } else if let ready {
                DaemonStart.announce(on: ready)
            }
        }
    }

    private static func below(_ arguments: ParsedArguments) throws(GrantError) -> GrantID? {
        guard let text = try arguments.text("below") else { return nil }
        guard let id = GrantID(text) else { throw GrantError(.usage, "invalid mount id “\(text)”") }
        return id
    }
}

extension DirectoryProbe {
    /// The probe of a daemon, which starts its own executable again.
    fileprivate static let daemon = DirectoryProbe.helper(program: "/proc/self/exe", arguments: lookArguments)
}
