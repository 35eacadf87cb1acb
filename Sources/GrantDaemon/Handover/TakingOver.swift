import CGrantSystem
import GrantCommandLine
import GrantControl
import GrantFUSE
import Glibc
import GrantModel
import GrantMounts
import GrantStore
import GrantSystem
import GrantViewFS

/// Takes over the mount of another daemon, and serves it: docs/decisions/succession.md.
struct TakingOver {
    let store: GrantStore
    /// The other daemon's record.
    let record: MountRecord

    /// How long the other daemon may take for each message, in seconds: it pauses everything first.
    private static let patience = 30.0

    /// Takes over the mount of `record`, and serves it until it is unmounted or a signal ends it.
    /// `ready` is called once, with how long programs have waited, in nanoseconds, or with an
    /// error. After an error the other daemon keeps the mount. Returns the exit status.
    static func run(store: GrantStore, record: MountRecord, ready: (Result<Int64, GrantError>) -> Void) -> Int32 {
        do throws(GrantError) {
            return try TakingOver(store: store, record: record).run(ready)
        } catch {
            ready(.failure(error))
            return error.exitStatus
        }
    }

    private func run(_ ready: (Result<Int64, GrantError>) -> Void) throws(GrantError) -> Int32 {
        let socket: UnixSocket
        do throws(ControlClient.Failure) {
            socket = try ControlClient.open(record.socket, in: store.runDirectory, deadline: Clock.deadline(seconds: Self.patience))
        } catch {
            throw refusal(error.description)
        }
        let file = try ask(over: socket)
        let taken: Taken
        do throws(GrantError) {
            taken = try take(file, over: socket)
            Self.fail(at: "state")
            try say(.ready, over: socket)
        } catch {
            // Best effort: the other daemon also resumes when the connection ends.
            try? HandoverMessage.cannot(error.cause ?? error.description).send(over: socket, deadline: Clock.deadline(seconds: 1))
            throw error
        }
        Self.fail(at: "ready")
        do throws(GrantError) {
            guard try hear(over: socket) == .yours else { throw refusal("it said something else than was expected") }
        } catch {
            // The other daemon resumes and is the one to ask: it may have recorded itself again before this one was recorded.
            try? store.register(record)
            throw error
        }
        Self.fail(at: "yours")
        // This is the first step: if this daemon dies in the next moment, another process must
        // clean up.
        taken.recovery?.arm(true)
        taken.mount.begin()
        try say(.serving, over: socket)
        return try serve(taken, ready)
    }

    /// Asks the other daemon for its mount. Returns the memory that it writes its state to, which it cannot create itself.
    private func ask(over socket: borrowing UnixSocket) throws(GrantError) -> FileDescriptor {
        do throws(Errno) {
            let file = try MemoryFile.of([])
            let deadline = Clock.deadline(seconds: Self.patience)
            try Frame.send(ControlRequest.handOver.encoded, over: socket, deadline: deadline)
            try socket.send(descriptors: [file.number], deadline: deadline)
            return file
        } catch {
            // A daemon that does not know the request has answered and hung up.
            throw refusal(isStranger(error) ? Self.otherVersion : error.description)
        }
    }

    /// For tests: dies or sleeps, as a daemon can at any moment.
    private static func fail(at stage: String) {
        guard let fault = InjectedFault.takingOver.setting else { return }
        if fault == stage { kill(getpid(), SIGKILL) }
        if fault == "slow " + stage { usleep(1_500_000) }
    }

    // MARK: taking

    /// A daemon that is ready to serve.
    struct Taken {
        let head: HandoverHead
        let process: Daemon.Process
        let mounted: MountedView
        let mount: OwnMount
        let server: ControlServer
        let claims: ClaimService
        let handingOver: HandingOver
        let record: MountRecord
        let scopes: (open: [Scope], withdrawals: [() -> Void])
        let audit: AuditTrail?
        let recovery: DaemonRecovery?
    }

    private func take(_ file: borrowing FileDescriptor, over socket: borrowing UnixSocket) throws(GrantError) -> Taken {
        // Before there are many descriptors.
        _ = DescriptorLimit.raise()
        guard case .state(let bytes, let count) = try hear(over: socket) else { throw refusal("it is of another version") }
        do {
            let deadline = Clock.deadline(seconds: Self.patience)
            let descriptors = try socket.receive(descriptors: Int(truncatingIfNeeded: count), deadline: deadline)
            var reader = try HandoverReader(file: file, count: Int(clamping: bytes), descriptors: descriptors)
            let head = try HandoverHead(from: &reader)
            let listener = try reader.takeDescriptor()
            guard listener >= 0, head.record == record.id else { throw Errno(EBADMSG) }
            return try make(head, FileDescriptor(owning: listener), &reader)
        } catch let error as Errno {
            throw refusal(error == Errno(EPROTO) ? Self.otherVersion : error.description)
        } catch let error as GrantError {
            throw error
        } catch {
            throw refusal("\(error)")
        }
    }

    func make(
        _ head: HandoverHead, _ listener: consuming FileDescriptor, _ reader: inout HandoverReader,
        previous: UnsafeMutablePointer<clinux_supervised>? = nil
    ) throws -> Taken {
        // The store's record says what it shows: a view, or a part of one.
        let shown = self.record.shown
        guard shown.onlyView == head.view else { throw Errno(EBADMSG) }
        let recovery = head.options.recovers ? try DaemonRecovery(of: head.record, head.view, store, previous: previous) : nil
        // A service consists of the processes in its control group: in another one the service would count as ended.
        if previous == nil, !ControlGroup.join(that: self.record.pid), head.notifySocket != nil {
            throw refusal("it is a service, which this process cannot become a part of: systemctl reload has it upgraded")
        }
        let owners = try Daemon.makeOwners(head.options)
        let process = Daemon.prepare(head.options, isBackground: true)
        if let socket = head.notifySocket { setenv("NOTIFY_SOCKET", socket, 1) }
        let audit = head.options.audit.map { _ in AuditTrail(of: head.options.auditKinds) }
        let files = Daemon.makeFiles(head.options, process, audit, owners, generation: head.generation, supervisor: recovery?.supervisor)
        let mounted = MountedView(
            store: store, shown: shown, mountpoint: head.mountpoint, options: head.options, files: files,
            owners: owners, since: head.since)
        let claims = Daemon.makeClaims(mounted)
        InjectedFault.stop(at: "unwatched")
        let scopes = try mounted.takeOver(from: &reader, process.polling)
        InjectedFault.stop(at: "watched")
        guard let connection = record.connection else { throw Errno(EBADMSG) }
        let handingOver = HandingOver(mounted)
        let server = try ControlServer(
            directory: store.runDirectory, name: head.socket,
            handler: MountControl(mounted: mounted, end: { kill(getpid(), SIGTERM) }, handingOver: handingOver), sessions: claims,
            listener: listener)
        // Since version 3.
        if reader.version >= 3, try reader.takeFlag() { try claims.takeOver(from: &reader, try server.takeOverSessions(from: &reader)) }
        // Since version 4.
        if reader.version >= 4, try reader.takeFlag() {
            let counts = try MountCounts(from: &reader)
            mounted.state.withLock { $0.counts = counts }
        }
        guard reader.isAtEnd else { throw Errno(EBADMSG) }
        let own = ProcessIdentity.own
        let record = MountRecord(
            id: head.record, shown: shown, mountpoint: head.mountpoint, pid: getpid(), processStart: own?.start ?? 0,
            bootID: own?.bootID ?? "", socket: head.socket, since: head.since, connection: connection)
        let mount = OwnMount.takeOver(files, at: head.mountpoint, head.identity, connection, recovery)
        mounted.identity.withLock { $0 = head.identity }
        try recovery?.prepare(
            HandingOver.Mount(mount: mount, record: record, store: store, temporary: head.temporary, recovery: recovery), mounted, server)
        // A process that sees the other daemon end finds this one recorded. If the other daemon
        // resumes, it records itself again.
        try store.register(record)
        return Taken(
            head: head, process: process, mounted: mounted, mount: mount, server: server, claims: claims, handingOver: handingOver,
            record: record,
            scopes: scopes, audit: audit, recovery: recovery)
    }

    // MARK: serving

    /// `hasDied` tells whether the other daemon has died. `before` is called when no request has
    /// been received yet, `begun` when requests are served.
    func serve(
        _ taken: Taken, hasDied: Bool = false, before: () -> Void = {}, begun: () -> Void = {},
        _ ready: (Result<Int64, GrantError>) -> Void
    ) throws(GrantError) -> Int32 {
        let (mounted, mount) = (taken.mounted, taken.mount)
        // Grants revoked while no daemon served are refused before any program is served.
        _ = mounted.applyWithdrawals()
        if let audit = taken.audit, let limit = taken.head.options.audit {
            try Daemon.start("grantfs-audit") { mounted.writeAudit(audit, keeping: limit) }
        }
        before()
        do throws(Errno) {
            try mounted.files.begin()
        } catch {
            throw GrantError(.system, "the mount that was taken over cannot be served", cause: error.description)
        }
        begun()
        let paused = Clock.monotonic - taken.head.pausedSince
        for withdrawal in taken.scopes.withdrawals { withdrawal() }
        mounted.files.watchKnownDirectories(of: taken.scopes.open)
        _ = BackgroundTask(mayHang: true) { mounted.openMissing() }
        try Daemon.startWatching(mounted)
        Confinement.filterCalls(taken.head.options)
        taken.handingOver.begin(
            HandingOver.Mount(
                mount: mount, record: taken.record, store: store, temporary: taken.head.temporary, recovery: taken.recovery))
        taken.server.begin()
        if hasDied { taken.claims.resumeRestored() }
        ready(.success(paused))
        let what =
            hasDied
            ? "goes on with view “\(mounted.view)” at \(mounted.place): its process \(record.pid) has died"
            : "took view “\(mounted.view)” at \(mounted.place) over from process \(record.pid)"
        mounted.say(hasDied ? .warning : .info, .mounted, what)
        let left = try Daemon.watch(taken.head.temporary, store)
        try Daemon.waitForEnd(mounted.files, taken.process.signals)
        taken.recovery?.arm(false)
        if Daemon.end(mounted, mount, store, left) { try? store.unregister(taken.record.id) }
        taken.server.stop()
        taken.recovery?.end()
        return 0
    }

    // MARK: words

    private static let otherVersion =
        "its daemon is of another version, which cannot hand over to this one: unmount, and mount again"

    /// Whether the other daemon sent something unknown, or hung up.
    private func isStranger(_ error: Errno) -> Bool { [EBADMSG, ECONNRESET, EPIPE].contains(error.rawValue) }

    private func refusal(_ cause: String) -> GrantError {
        GrantError(
            .system, "the mount at \(Terminal.visible(record.mountpoint)) is not handed over, and goes on as before", cause: cause)
    }

    private func say(_ message: HandoverMessage, over socket: borrowing UnixSocket) throws(GrantError) {
        do throws(Errno) {
            try message.send(over: socket, deadline: Clock.deadline(seconds: Self.patience))
        } catch {
            throw refusal(error.description)
        }
    }

    private func hear(over socket: borrowing UnixSocket) throws(GrantError) -> HandoverMessage {
        let message: HandoverMessage
        do throws(Errno) {
            message = try HandoverMessage.receive(over: socket, deadline: Clock.deadline(seconds: Self.patience))
        } catch {
            throw refusal(isStranger(error) ? Self.otherVersion : error.description)
        }
        if case .refused(let reason) = message { throw refusal(reason) }
        return message
    }
}
