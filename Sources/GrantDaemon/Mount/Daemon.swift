import GrantCommandLine
import GrantControl
import GrantFUSE
import Glibc
import GrantModel
import GrantMounts
import GrantStore
import GrantSystem
import GrantViewFS

/// The process behind one mount.
enum Daemon {
    /// Serves `shown` at `mountpoint` (absolute, canonical) until it is unmounted or a signal ends it. `ready` is called once: with nil when
    /// the mount answers, or with the error. Returns the exit status.
    ///
    /// `attached` is called once the mount is there and recorded. It may not be served yet.
    ///
    /// `isBackground`: its standard error has no reader, and it is not a service. `temporary`: the
    /// file of a mount that ends with the command that made it. `command`: the command line for
    /// which it is mounted, for the log.
    ///
    /// The order matters: the socket listens before the mount is recorded, and the mount is recorded before the grants are read. So a
    /// command that changes the store either finds this mount and notifies it, or this mount has read the change.
    static func run(
        store: GrantStore, shown: ShownViews, mountpoint: [UInt8], options: MountOptions, isBackground: Bool = false,
        temporary: String? = nil, command: String? = nil, attached: () -> Void = {}, ready: (GrantError?) -> Void
    ) -> Int32 {
        let id = GrantID.random()
        // Before there are threads, and before this process drops rights that the next daemon needs.
        let (recovery, owners): (DaemonRecovery?, OwnerNamespace?)
        do throws(GrantError) {
            owners = try makeOwners(options)
            recovery = options.recovers ? try DaemonRecovery(of: id, shown.label, store) : nil
        } catch {
            ready(error)
            return error.exitStatus
        }
        let process = prepare(options, isBackground: isBackground)
        let audit = options.audit.map { _ in AuditTrail(of: options.auditKinds) }
        let files = makeFiles(options, process, audit, owners, supervisor: recovery?.supervisor, of: shown)
        files.names.isPrivate = options.isPrivate
        files.leaveAccessTimes(offFiles: options.noAccessTime, offDirectories: options.noAccessTime || options.noDirectoryAccessTime)
        let mounted = MountedView(store: store, shown: shown, mountpoint: mountpoint, options: options, files: files, owners: owners)
        let claims = makeClaims(mounted)
        let handingOver = HandingOver(mounted)
        let place = mounted.place
        let socket = "\(id).sock"
        do throws(GrantError) {
            let server = try ControlServer(
                directory: store.runDirectory, name: socket,
                handler: MountControl(mounted: mounted, end: { kill(getpid(), SIGTERM) }, handingOver: handingOver), sessions: claims)
            defer { server.stop() }
            defer { recovery?.end() }
            let own = ProcessIdentity.own
            var record = MountRecord(
                id: id, shown: shown, mountpoint: mountpoint, pid: getpid(), processStart: own?.start ?? 0,
                bootID: own?.bootID ?? "", socket: socket, since: mounted.since)
            try store.register(record)
            var isTakenAway = true
            // Best effort: any command removes the record of a mount that is gone. One that is not has to stay findable.
            defer {
                if isTakenAway { try? store.unregister(id) }
            }
            if options.allowOther, !Identity.isSafeForOthers {
                throw GrantError(
                    .permission, "the \(shown.description) cannot be mounted for other users",
                    cause: "what they do would be done as root", advice: "this process needs CAP_SETUID, CAP_SETGID and CAP_SETPCAP")
            }
            guard Identity.canHaveOwnMask else {
                throw GrantError(
                    .system, "the \(shown.description) cannot be mounted",
                    cause: "unshare(2) with CLONE_FS is refused, so files would be made with wrong modes",
                    advice: "the filter of system calls around this process (a container's, or a service's) has to allow it")
            }
            if let audit, let limit = options.audit {
                try start("grantfs-audit") { mounted.writeAudit(audit, keeping: limit) }
            }
            mounted.reconcile()
            // It does not know that files of owners without a number in the mount are read-only.
            if owners == nil { files.letKernelOpen(hasMandatory: mounted.hasMandatory, hasSeveralViews: shown.onlyView == nil) }
            let mount = try OwnMount.make(files, shown.label, mountpoint, options, process.polling, recovery) {
                (connection) throws(GrantError) in
                record.connection = connection
                try store.register(record)
                attached()
            }
            mounted.identity.withLock { $0 = mount.identity }
            isTakenAway = false
            var isServed = false
            defer { if !isServed { mount.unmount() } }
            try startWatching(mounted)
            Confinement.filterCalls(options)
            let handed = HandingOver.Mount(mount: mount, record: record, store: store, temporary: temporary, recovery: recovery)
            handingOver.begin(handed)
            try recovery?.begin(handed, mounted, server)
            try? store.append(
                .mounted, view: shown.label, detail: RunEntries.detail(place, for: command), by: mounted.actor)
            ready(nil)
            mounted.say(.info, .mounted, "mounted \(shown.description) at \(place)")
            ServiceManager.ready("\(shown.description) mounted at \(place)")
            let left = try watch(temporary, store)
            try waitForEnd(files, process.signals)
            isServed = true
            recovery?.arm(false)
            isTakenAway = end(mounted, mount, store, left)
            return 0
        } catch {
            ready(error)
            return error.exitStatus
        }
    }

    /// The properties of a daemon's process after `prepare`.
    struct Process {
        /// The signals that end the daemon, which are blocked.
        let signals: sigset_t
        /// RLIMIT_NOFILE.
        let descriptorLimit: Int
        let polling: IdlePolling?
    }

    /// Sets up signals, limits, capabilities and the log for a process that serves a mount.
    static func prepare(_ options: MountOptions, isBackground: Bool) -> Process {
        let signals = blockSignals()
        let limit = DescriptorLimit.raise()
        Identity.prepareProcess()
        let polling = idlePolling(options.idle)
        Confinement.giveUpCapabilities()
        SystemLog.open(isForeground: !isBackground)
        if isBackground { ServiceManager.leave() }
        return Process(signals: signals, descriptorLimit: limit, polling: polling)
    }

    /// `generation`: that of the daemon whose mount is taken over.
    static func makeFiles(
        _ options: MountOptions, _ process: Process, _ audit: AuditTrail?, _ owners: OwnerNamespace?, generation: UInt32? = nil,
        supervisor: Supervisor? = nil, of shown: ShownViews? = nil
    ) -> ViewFS {
        let isBound = if case .bound = shown { true } else { false }
        return ViewFS(
            cache: options.cache, descriptorLimit: process.descriptorLimit, audit: audit,
            holdsOpenings: !InjectedFault.noOpenings.isPresent, generation: generation, supervisor: supervisor,
            nursery: shown == .documents ? try? GrantName(entry: ShownViews.programsDirectory) : nil,
            fixed: isBound ? try? GrantName(entry: ShownViews.addedDirectory) : nil, unmapped: owners?.unmapped)
    }

    /// Returns nil if files have the owners that they have on the host.
    static func makeOwners(_ options: MountOptions) throws(GrantError) -> OwnerNamespace? {
        guard let map = options.owners else { return nil }
        do throws(Errno) {
            let made = try OwnerNamespace(users: map.userLines, groups: map.groupLines)
            guard map.has(user: made.unmapped.user, group: made.unmapped.group) else { return made }
        } catch {
            throw GrantError(
                error == Errno(EPERM) ? .permission : .system, "files cannot have other owners",
                cause: error == Errno(EOPNOTSUPP) ? OwnerNamespace.needed : error.description,
                advice: error == Errno(EPERM) ? "the mount option “map” is for root of the machine" : nil)
        }
        throw GrantError(
            .usage, "files cannot have these owners", cause: "the number 65534 stands for all owners that the map does not have",
            advice: "use numbers of /etc/subuid")
    }

    static func makeClaims(_ mounted: MountedView) -> ClaimService {
        let claims = ClaimService(
            files: mounted.files, isRevoked: { mounted.isRevoked($0) }, isMandatory: { mounted.isMandatory($0) },
            logFailures: { mounted.say($0) })
        mounted.claims = claims
        return claims
    }

    /// Ends a daemon that was asked to end, or whose mount is gone. Returns whether the mount's record may be removed.
    static func end(_ mounted: MountedView, _ mount: OwnMount, _ store: GrantStore, _ left: Lock<TemporaryMount?>) -> Bool {
        ServiceManager.stopping()
        mounted.logDenials()
        let isTakenAway = mount.end(mounted)
        // Best effort: the next command cleans up the rest.
        try? left.withLock { $0 }?.clean()
        try? store.append(.unmounted, view: mounted.view, detail: mounted.place, by: mounted.actor)
        mounted.say(.info, .unmounted, "unmounted \(mounted.shown.description) at \(mounted.place)")
        mounted.files.session?.hangUp()
        return isTakenAway
    }

    static func startWatching(_ mounted: MountedView) throws(GrantError) {
        try start("grantfs-store") { mounted.watchStore() }
        let store = mounted.state.withLock { $0.store }
        _ = BackgroundTask(mayHang: true) { for path in DocumentWorkplace.sweep(store) { mounted.sayKept(path, nil) } }
        try start("grantfs-dirs") { mounted.watchDirectories() }
    }

    /// Starts a thread that runs until the daemon ends.
    static func start(_ name: String, _ body: @escaping @Sendable () -> Void) throws(GrantError) {
        do throws(Errno) {
            try WorkerThread.start(name, body).detach()
        } catch {
            throw GrantError(.system, "no thread could be started", cause: error.description)
        }
    }

    /// Ends this daemon when the command of its temporary mount has ended. Returns a box that then has the mount to be cleaned up. `file`:
    /// nil for other mounts.
    static func watch(_ file: String?, _ store: GrantStore) throws(GrantError) -> Lock<TemporaryMount?> {
        let left = Lock<TemporaryMount?>(nil)
        guard let file else { return left }
        try start("grantfs-command") {
            guard let mount = TemporaryMount.awaitEnd(of: file, in: store) else { return }
            left.withLock { $0 = mount }
            kill(getpid(), SIGTERM)
        }
        return left
    }

    /// Waits for a signal, a command, or the end of the kernel's connection. The last two arrive as
    /// signals, too.
    static func waitForEnd(_ files: ViewFS, _ signals: sigset_t) throws(GrantError) {
        guard let session = files.session else { return }
        try start("grantfs-end") {
            session.waitUntilEnded()
            kill(getpid(), SIGUSR1)
        }
        var signals = signals
        while sigwaitinfo(&signals, nil) < 0, errno == EINTR {}
    }

    private static func idlePolling(_ mode: IdleMode) -> IdlePolling? {
        guard mode == .poll || (mode == .auto && IdlePolling.isWorthwhile) else { return nil }
        do throws(Errno) {
            return try IdlePolling()
        } catch {
            if mode == .poll {
                let who = "the mount option idle=poll is for root and for users who may write there: mount.grantfs(8)"
                Terminal.note("idle processors go on halting: \(IdlePolling.path): \(error) (\(who))")
            }
            return nil
        }
    }

    /// Blocks the signals that end a daemon, for this thread and all that it starts, and returns them.
    private static func blockSignals() -> sigset_t {
        signal(SIGPIPE, SIG_IGN)
        var set = sigset_t()
        sigemptyset(&set)
        for number in [SIGTERM, SIGINT, SIGHUP, SIGUSR1] { sigaddset(&set, number) }
        pthread_sigmask(SIG_BLOCK, &set, nil)
        return set
    }
}

extension MountOptions {
    /// The words for the kernel and fusermount3. Permissions are always checked by the kernel, in front of the daemon.
    var words: [String] {
        var words = ["default_permissions"]
        if readOnly { words.append("ro") }
        if allowOther { words.append("allow_other") }
        if allowSetID { words.append("suid") }
        if allowDevices { words.append("dev") }
        if noExecute { words.append("noexec") }
        if noAccessTime { words.append("noatime") }
        return words
    }
}
