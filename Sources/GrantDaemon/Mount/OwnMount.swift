import GrantCommandLine
import GrantFUSE
import Glibc
import GrantModel
import GrantMounts
import GrantSystem
import GrantViewFS

/// Makes, identifies and unmounts the mount of this daemon. It unmounts exactly that mount, wherever the path leads by then.
struct OwnMount: Sendable {
    private let mountpoint: [UInt8]
    let identity: MountIdentity
    private let connection: FUSEConnection
    /// It is nil if it could not be started.
    private var keeper: Keeper?

    /// The time-out of the withdrawal at the end, in seconds.
    private static let withdrawalTimeout = 10.0

    private init(of root: borrowing FileDescriptor, at mountpoint: [UInt8], _ files: ViewFS) throws(Errno) {
        self.mountpoint = mountpoint
        identity = try MountIdentity(of: root)
        connection = try FUSEConnection(of: root, generation: files.generation)
    }

    /// Mounts and serves. Calls `known` with the connection, for root before any process can use
    /// the mount. It leaves nothing mounted if it throws.
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
            made.unmount()
            throw error
        }
        made.startKeeper(files, recovery)
        return made
    }

    /// Represents the mount of another daemon. This daemon becomes responsible for it with `begin`.
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

    /// Makes this daemon's keeper responsible for the mount.
    func begin() { keeper?.begin() }

    /// Ends the keeper, because another daemon has the mount from now on.
    func leave() { keeper?.dismiss() }

    /// Starts the process that cleans up when this one dies. Must be called before the confinement, which forbids starting programs.
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
        // libfuse and fusermount3 do not know nodiratime. A user's mount gets its effect from the
        // daemon alone.
        let words = options.words + (options.noDirectoryAccessTime ? ["nodiratime"] : [])
        do throws(Errno) {
            // The path is resolved only here, and a symbolic link in it is refused. Everything later uses descriptors.
            let directory = try FileDescriptor.openWithoutLinks(mountpoint)
            return try FUSEMount(on: directory, subtype: "grantfs", source: view.description, words: words)
        } catch {
            throw refusal(view, mountpoint, error)
        }
    }

    /// Mounts for a user by fusermount3, which takes the path.
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
            made.unmount()
            throw error
        }
        made.startKeeper(files, recovery)
        return made
    }

    private static func serve(
        _ files: ViewFS, _ view: ViewName, _ options: MountOptions, _ polling: IdlePolling?, at place: [UInt8]
    ) throws(Errno) {
        try files.mount(
            at: place, source: view.description, words: options.words, leavesSetID: InjectedFault.ownSetID.isPresent,
            mapsDirectly: !InjectedFault.noDirectMaps.isPresent, idlePolling: polling)
    }

    /// Checks that the mount answers: that the root's attributes come from this daemon. Then sets the read-ahead.
    private func answer(_ root: borrowing FileDescriptor) throws(Errno) {
        guard try root.status().st.st_ino == 1 else { throw Errno(EIO) }
        // The size of the largest request.
        BackingDevice.setReadAhead(kilobytes: 1024, of: connection.device)
        BackingDevice.liftOwnBound(of: connection.device)
    }

    private static func refusal(_ view: ViewName, _ mountpoint: [UInt8], _ error: Errno) -> GrantError {
        GrantError(
            .mountFailed, "the view “\(view)” cannot be mounted at \(Terminal.visible(mountpoint))", cause: error.description,
            advice: "see the lines above, and /dev/fuse, fusermount3 and /etc/fuse.conf, which decide who may mount")
    }

    // MARK: the end

    /// Withdraws everything and unmounts. Returns false if programs may still read something. The
    /// mount has to stay recorded then.
    func end(_ mounted: MountedView) -> Bool {
        let files = mounted.files
        // The kernel accepts notifications even on an aborted connection, but then it is not asked what it still has.
        let isWithdrawn = mounted.end(within: OwnMount.withdrawalTimeout)
        let wasServed = files.session?.hasEnded == false
        if wasServed { unmount() }
        if isWithdrawn { keeper?.dismiss() }
        return isWithdrawn && wasServed || isGone(files)
    }

    /// Unmounts, if it is still mounted. Logs a failure.
    func unmount() {
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

    /// Whether the kernel has ended the connection because its last mount is gone and no program holds a file of it.
    private func isGone(_ files: ViewFS) -> Bool {
        let deadline = Clock.deadline(seconds: 0.5)
        var turn: UInt32 = 100
        while true {
            switch connection.presence {
            case .gone: return true
            case .unknown:
                // Every descriptor and every mapping of a program is in the tables of open files.
                let isMounted = identity.number.map { MountNumber.isThere($0) != false } ?? true
                // They are not complete where the kernel opens files without a request.
                return !isMounted && !files.kernelOpens && files.files.count == 0 && files.directories.count == 0
            case .there:
                if Clock.monotonic >= deadline { return false }
                usleep(turn)
                turn = min(turn * 2, 5_000)
            }
        }
    }
}
