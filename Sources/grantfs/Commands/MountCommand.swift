import GrantAdministration
import GrantCommandLine
import GrantModel
import GrantStore
import GrantSystem

/// `grantfs mount`: checks the words, and starts the daemon's program with them, or becomes it in the foreground.
enum MountCommand {
    static func run(_ arguments: ParsedArguments) throws(GrantError) -> Int32 {
        let request = try MountRequest(arguments, try MountRequest.parser(arguments))
        if request.parser.isRemount { return try remount(request.mountpoint, request.options, request.storeDirectory) }
        // A temporary mount shows a view of the command that started this one, which may be new.
        let mayBeNew = arguments.has("new") || request.parser.isNew || arguments.has("temporary")
        if !mayBeNew, let view = request.shown.onlyView { try requireKnown(view, request.storeDirectory) }
        if arguments.has("fake") { return 0 }
        if arguments.has("foreground") { try CompanionProgram.daemon.become(ProcessArguments.words) }
        return try background()
    }

    /// Starts the daemon with the same words, in the foreground of a session of its own, and waits until its mount answers.
    private static func background() throws(GrantError) -> Int32 {
        let program = try CompanionProgram.daemon.file()
        do throws(Errno) {
            return try BackgroundStart.run(program, words: ProcessArguments.words)
        } catch {
            throw GrantError(.mountFailed, "the daemon cannot be started", cause: error.description)
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
