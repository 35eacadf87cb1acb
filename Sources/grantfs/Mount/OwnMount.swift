import GrantFUSE
import Glibc
import GrantAdministration
import GrantModel
import GrantSystem
import GrantViewFS

/// The mount of this daemon: made, known by what it is, and taken away as that and nothing else, wherever its path leads by then.
struct OwnMount: Sendable {
    private let mountpoint: [UInt8]
    let identity: MountIdentity
    private let connection: FUSEConnection
    /// nil where it could not be started.
    private var keeper: Keeper?

    /// How long what is held may take to be withdrawn at the end, in seconds.
    private static let patience = 10.0

    private init(of root: borrowing FileDescriptor, at mountpoint: [UInt8], _ files: ViewFS) throws(Errno) {
        self.mountpoint = mountpoint
        identity = try MountIdentity(of: root)
        connection = try FUSEConnection(of: root, generation: files.generation)
    }

    /// Mounts and serves. `known` is told the connection; for root before anybody can use the mount. When this throws nothing is mounted.
    static func make(
        _ files: ViewFS, _ view: ViewName, _ mountpoint: [UInt8], _ options: MountOptions, _ polling: IdlePolling?,
        _ recovery: DaemonRecovery?, known: (FUSEConnection) throws(GrantError) -> Void
    ) throws(GrantError) -> OwnMount {
        if geteuid() != 0 { return try makeByHelper(files, view, mountpoint, options, polling, recovery, known) }
        let mount = try attach(view, mountpoint, options)
        var made: OwnMount
        do throws(Errno) {
            made = try OwnMount(of: mount.root, at: mountpoint, files)
        } catch {
            throw refusal(view, mountpoint, error)
        }
        do throws(GrantError) {
            try known(made.connection)
            do throws(Errno) {
                try serve(files, view, options, polling, at: Array("/dev/fd/\(mount.device)".utf8))
                try made.answer(mount.root)
                files.keepRootListingUncached(mount.root)
            } catch {
                throw refusal(view, mountpoint, error)
            }
        } catch {
            made.takeAway()
            throw error
        }
        made.startKeeper(files, recovery)
        return made
    }

    /// The mount of another daemon, which this one goes on with when that has let go of it: `begin`.
    static func takeOver(
        _ files: ViewFS, at mountpoint: [UInt8], _ identity: MountIdentity, _ connection: FUSEConnection, _ recovery: DaemonRecovery?
    ) -> OwnMount {
        var taken = OwnMount(mountpoint: mountpoint, identity: identity, connection: connection)
        taken.startKeeper(files, recovery, waits: true)
        return taken
    }

    private init(mountpoint: [UInt8], identity: MountIdentity, connection: FUSEConnection) {
        (self.mountpoint, self.identity, self.connection) = (mountpoint, identity, connection)
    }

    /// The mount is this daemon's from now on.
    func begin() { keeper?.begin() }

    /// The mount is another daemon's from now on.
    func leave() { keeper?.dismiss() }

    /// Who looks after the mount when this process cannot. To be called before the process may start no program any more.
    private mutating func startKeeper(_ files: ViewFS, _ recovery: DaemonRecovery?, waits: Bool = false) {
        do throws(Errno) {
            guard let session = files.session, let nodes = files.tree.shared else { throw Errno(ENOMEM) }
            keeper = try Keeper(
                mountpoint: mountpoint, mount: identity, connection, session, nodes: nodes.file, supervisor: recovery?.supervisor.process,
                waits: waits)
            recovery?.keeper = keeper?.number
        } catch {
            SystemLog.write(.warning, "no process could be started that looks after the mount should the daemon die: \(error)")
        }
    }

    private static func attach(_ view: ViewName, _ mountpoint: [UInt8], _ options: MountOptions) throws(GrantError) -> FUSEMount {
        // The library and fusermount3 do not know it; in a user's mount the daemon goes by it all the same.
        let words = options.words + (options.noDirectoryAccessTime ? ["nodiratime"] : [])
        do throws(Errno) {
            // The path is resolved once, and a link that has come into it is refused. From here on descriptors do.
            let directory = try FileDescriptor.openWithoutLinks(mountpoint)
            return try FUSEMount(on: directory, subtype: "grantfs", source: view.description, words: words)
        } catch {
            throw refusal(view, mountpoint, error)
        }
    }

    /// A user's mount, by fusermount3, which goes by the path.
    private static func makeByHelper(
        _ files: ViewFS, _ view: ViewName, _ mountpoint: [UInt8], _ options: MountOptions, _ polling: IdlePolling?,
        _ recovery: DaemonRecovery?, _ known: (FUSEConnection) throws(GrantError) -> Void
    ) throws(GrantError) -> OwnMount {
        var made: OwnMount
        do throws(Errno) {
            try serve(files, view, options, polling, at: mountpoint)
            let root = try FileDescriptor.openWithoutLinks(mountpoint)
            made = try OwnMount(of: root, at: mountpoint, files)
            try made.answer(root)
            files.keepRootListingUncached(root)
        } catch {
            throw refusal(view, mountpoint, error)
        }
        do throws(GrantError) {
            try known(made.connection)
        } catch {
            made.takeAway()
            throw error
        }
        made.startKeeper(files, recovery)
        return made
    }

    private static func serve(
        _ files: ViewFS, _ view: ViewName, _ options: MountOptions, _ polling: IdlePolling?, at place: [UInt8]
    ) throws(Errno) {
        // For tests: what a kernel before 5.11 does.
        let leavesSetID = getenv("GRANTFS_TEST_LEAVE_SETID") != nil
        let mapsDirectly = getenv("GRANTFS_TEST_NO_DIRECT_MAPS") == nil
        try files.mount(
            at: place, source: view.description, words: options.words, leavesSetID: leavesSetID, mapsDirectly: mapsDirectly,
            idlePolling: polling)
    }

    /// The mount answers when the kernel has the root's attributes from us.
    private func answer(_ root: borrowing FileDescriptor) throws(Errno) {
        guard try root.status().st.st_ino == 1 else { throw Errno(EIO) }
        // As much as one request carries.
        BackingDevice.setReadAhead(kilobytes: 1024, of: connection.device)
        BackingDevice.liftOwnBound(of: connection.device)
    }

    private static func refusal(_ view: ViewName, _ mountpoint: [UInt8], _ error: Errno) -> GrantError {
        GrantError(
            .mountFailed, "the view “\(view)” cannot be mounted at \(Terminal.visible(mountpoint))", cause: error.description,
            advice: "see the lines above; /dev/fuse, fusermount3 and /etc/fuse.conf decide who may mount")
    }

    // MARK: the end

    /// Withdraws everything and unmounts. Returns whether nothing is left that anybody could read on: else the mount is to stay on record.
    func end(_ mounted: MountedView) -> Bool {
        let files = mounted.files
        // The kernel takes notifications also when somebody has cut the connection. But it is not asked then what it has.
        let isWithdrawn = mounted.end(within: OwnMount.patience)
        let wasServed = files.session?.hasEnded == false
        if wasServed { takeAway() }
        if isWithdrawn { keeper?.dismiss() }
        return isWithdrawn && wasServed || isGone(files)
    }

    /// Takes the mount away, if it is mounted still.
    func takeAway() {
        do throws(GrantError) {
            if geteuid() != 0, let keeper { return try keeper.unmount() }
            do throws(Errno) {
                try Mountpoint(canonical: mountpoint).unmount(identity, lazy: true)
            } catch {
                throw GrantError(
                    .mountFailed, "the view cannot be unmounted: it stays, dead", cause: error.description,
                    advice: "it was mounted at \(String(decoding: mountpoint, as: UTF8.self))")
            }
        } catch {
            SystemLog.write(.error, Terminal.visible(error.description))
        }
    }

    /// After the kernel has ended the connection by itself: whether that was because its last mount is gone and nobody holds anything of it.
    private func isGone(_ files: ViewFS) -> Bool {
        let deadline = Clock.deadline(seconds: 0.5)
        while true {
            switch connection.presence {
            case .gone: return true
            case .unknown:
                // Every descriptor and every mapping is an open file here.
                let isMounted = identity.number.map { MountNumber.isThere($0) != false } ?? true
                // Nobody says what is open where the kernel opens by itself.
                return !isMounted && !files.kernelOpens && files.files.count == 0 && files.directories.count == 0
            case .there:
                if Clock.monotonic >= deadline { return false }
                usleep(5_000)
            }
        }
    }
}
