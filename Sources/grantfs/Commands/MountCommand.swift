import Glibc
import GrantAdministration
import GrantCommandLine
import GrantDaemon
import GrantModel
import GrantStore
import GrantSystem

/// `grantfs mount`
enum MountCommand {
    static let declaration = CommandDeclaration(
        "mount", "Mounts a view and returns once the mount answers.",
        operands: [OperandDeclaration("VIEW"), OperandDeclaration("MOUNTPOINT")],
        options: [
            OptionDeclaration("options", short: "o", value: "OPTS", help: "mount options, separated by commas", isRepeatable: true),
            OptionDeclaration("new", help: "also a view without grants, which is empty at first"),
            OptionDeclaration(
                "views", help: "VIEW is a pattern, such as 'build-*': each matching view is mounted in a directory of its name"),
            OptionDeclaration("foreground", short: "f", help: "stay in the foreground"),
            OptionDeclaration("mountpoints", help: "the mountpoints of several views alone", isHidden: true),
            OptionDeclaration("private", help: "the mountpoints are for this user alone", isHidden: true),
            OptionDeclaration("below", value: "ID", help: "on a mountpoint of that mount of several views or not at all", isHidden: true),
            OptionDeclaration("portal", help: "the documents of the desktop's programs, for grantfs portal", isHidden: true),
            OptionDeclaration("sloppy", help: "pass over unknown mount options", isHidden: true),
            OptionDeclaration("fake", help: "check everything and mount nothing", isHidden: true),
            OptionDeclaration("temporary", value: "FILE", help: "the file of a mount that ends with another command", isHidden: true),
            OptionDeclaration("ready-fd", value: "N", help: "where to say that the mount answers", isHidden: true),
            OptionDeclaration("go-fd", value: "N", help: "tells when to mount", isHidden: true),
            OptionDeclaration("look-fd", value: "N", help: "names directories to inspect before that", isHidden: true),
        ],
        notes: [
            "Mount options: ro, rw, allow_other, default_permissions, nosuid, nodev, noexec, noatime, nodiratime. "
                + "Of grantfs: store=DIR, submounts, audit, audit-of=KINDS, new, views, recover, "
                + "cache=shared|exclusive|none, idle=auto|poll|halt. Those that mount(8) passes along are accepted. "
                + "nosuid and nodev are on by default.",
            "A VIEW that no grant names, and none has, is refused, unless --new or the mount option new says that it is meant.",
            "With --views (or the mount option views) each matching view is a mount with its own daemon. A view is mounted when it gets its first grant. "
                + "grantfs unmount MOUNTPOINT, or umount -R, unmounts all of them.",
            "A dead mount of a view of this store at MOUNTPOINT is cleaned away first.",
        ],
        run: run)

    private static func run(_ arguments: ParsedArguments) throws(GrantError) -> Int32 {
        var parser = MountOptionParser(isSloppy: arguments.has("sloppy"))
        for list in arguments.options["options"] ?? [] { try parser.read(try ParsedArguments.text(list, "the value of -o")) }
        var options = parser.options
        options.isPrivate = arguments.has("private")
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
        if let goes, !BackgroundStart.mayGo(goes) { return 1 }
        let shown = try shown(arguments, parser)
        let mountpoint = try Mountpoint(arguments.operands[1])
        let directory = try StoreLocation.directory(explicit: options.store.map { Array($0.utf8) } ?? arguments.bytes("store"))
        if parser.isRemount { return try remount(mountpoint, options, directory) }

        // A temporary mount shows a view of the command that started this one, which may be new.
        let mayBeNew = arguments.has("new") || parser.isNew || arguments.has("temporary")
        if !mayBeNew, let view = shown.onlyView { try requireKnown(view, directory) }
        if arguments.has("fake") { return 0 }
        if !arguments.has("foreground") { return try background() }
        if case .mountpoints = shown, !arguments.has("mountpoints") {
            return try mountSeparately(shown, mountpoint, directory, parser, arguments)
        }

        let temporary = try arguments.text("temporary")
        let store = if let early { early } else { try GrantStore(directory: directory, create: true, survivesPowerLoss: temporary == nil) }
        // Held until the mount answers or has failed.
        var turn: MountLock? = try mountpoint.lockForMounting(in: store)
        try mountpoint.prepare(for: shown, store: store, probe: .command, isTemporary: temporary != nil, below: try below(arguments)) {
            Terminal.note($0)
        }
        let ready = try arguments.text("ready-fd").flatMap { Int32($0) }
        if ready != nil { BackgroundStart.settle() }
        return Daemon.run(
            store: store, shown: shown, mountpoint: mountpoint.path, options: options, isBackground: ready != nil, temporary: temporary,
            command: temporary == nil ? nil : BackgroundStart.takeCommand(),
            attached: { if goes != nil, let ready { BackgroundStart.announceAttached(on: ready) } }
        ) { error in
            turn.take()?.end()
            if let error {
                Terminal.report(error)
            } else if let ready {
                BackgroundStart.announce(on: ready)
            }
        }
    }

    /// Mounts several views: this process starts daemons and serves no mount itself.
    private static func mountSeparately(
        _ shown: ShownViews, _ mountpoint: Mountpoint, _ directory: String, _ parser: MountOptionParser, _ arguments: ParsedArguments
    ) throws(GrantError) -> Int32 {
        let mounts = ViewMounts(
            store: try GrantStore(directory: directory, create: true), shown: shown, mountpoint: mountpoint, options: parser.options,
            viewOptions: try viewOptions(arguments))
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
            BackgroundStart.settle()
            ServiceManager.leave()
        }
        SystemLog.open(isForeground: ready == nil)
        return { error in
            if let error {
                Terminal.report(error)
            } else if let ready {
                BackgroundStart.announce(on: ready)
            }
        }
    }

    /// Starts the same command again, in the foreground of a session of its own, and waits until its mount answers.
    private static func background() throws(GrantError) -> Int32 {
        do {
            return try BackgroundStart.run(words: ProcessArguments.words)
        } catch {
            throw GrantError(.mountFailed, "the daemon cannot be started", cause: error.description)
        }
    }

    private static func shown(_ arguments: ParsedArguments, _ parser: MountOptionParser) throws(GrantError) -> ShownViews {
        let word = arguments.operands[0]
        let isPortal = arguments.has("portal")
        guard isPortal || arguments.has("views") || parser.hasSeveralViews || arguments.has("mountpoints") else {
            if !parser.isSeparate { return .one(try view(word)) }
            throw GrantError(
                .usage, "the mount option “separate” is for several views", advice: "grantfs mount --views PATTERN MOUNTPOINT")
        }
        if isPortal {
            if !parser.options.recovers { return .documents }
            throw GrantError(
                .usage, "the documents cannot be mounted with -o recover",
                cause: "another daemon would not know which program has which directory", advice: "leave recover out")
        }
        let text = try ParsedArguments.text(word, "the pattern of views")
        do throws(GrantName.Flaw) {
            return .mountpoints(try ViewPattern(text))
        } catch {
            throw GrantError(
                .usage, "invalid pattern of views “\(text)”", cause: error.rawValue,
                advice: "the pattern comes first: grantfs mount --views 'build-*' MOUNTPOINT")
        }
    }

    private static func below(_ arguments: ParsedArguments) throws(GrantError) -> GrantID? {
        guard let text = try arguments.text("below") else { return nil }
        guard let id = GrantID(text) else { throw GrantError(.usage, "invalid mount id “\(text)”") }
        return id
    }

    private static func view(_ word: [UInt8]) throws(GrantError) -> ViewName {
        do {
            return try ParsedArguments.view(named: try ParsedArguments.text(word, "the view's name"))
        } catch {
            guard word.contains(0x2F) else { throw error }
            throw GrantError(.usage, error.message, cause: error.cause, advice: "the view comes first: grantfs mount VIEW MOUNTPOINT")
        }
    }

    /// Refuses a view that has no grant, because its name is usually a typing error. Creates no store.
    private static func requireKnown(_ view: ViewName, _ directory: String) throws(GrantError) {
        let advice =
            "grant something to it first: grantfs grant --view \(view) DIR, or show it empty: mount --new \(view)"
        let store: GrantStore
        do {
            store = try GrantStore(directory: directory, create: false)
        } catch {
            throw error.code == .notFound ? GrantAdministrator.unknown(view, among: [], advice: advice) : error
        }
        try GrantAdministrator(store: store).requireKnown(view, advice: advice)
    }

    private static func remount(_ mountpoint: Mountpoint, _ options: MountOptions, _ directory: String) throws(GrantError) -> Int32 {
        guard let entry = try mountpoint.mounted(), entry.type == GrantAdministrator.filesystemType else {
            throw GrantError(.mountFailed, "\(mountpoint.shown) cannot be remounted", cause: "no view is mounted there")
        }
        let records = (try? GrantStore(directory: directory, create: false).mounts()) ?? []
        // It has the flags of an empty directory. The views' own flags count.
        if records.contains(where: { $0.shown.hasMountpoints && $0.mountpoint == mountpoint.path && $0.connection?.device == entry.device })
        {
            throw GrantError(
                .mountFailed, "\(mountpoint.shown) cannot be remounted", cause: "it shows several views, each a mount of its own",
                advice: "unmount it, and mount it with other options")
        }
        do {
            try mountpoint.remount(options)
        } catch {
            throw GrantError(.mountFailed, "\(mountpoint.shown) cannot be remounted", cause: error.description)
        }
        return 0
    }
}
