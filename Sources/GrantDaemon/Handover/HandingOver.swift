import GrantControl
import Glibc
import GrantModel
import GrantStore
import GrantSystem
import Synchronization
import GrantViewFS

/// Hands this daemon's mount over to another daemon that asks for it: docs/decisions/succession.md.
///
/// Everything is paused, written down and sent with all descriptors. Nothing is changed here, so this daemon can resume at any moment
/// until the other one says that it serves the mount.
final class HandingOver: Sendable {
    /// What exists once the view is mounted.
    struct Mount: Sendable {
        let mount: OwnMount
        let record: MountRecord
        let store: GrantStore
        /// See `Daemon.run`.
        let temporary: String?
        let recovery: DaemonRecovery?
    }

    private let mounted: MountedView
    private let mount = Lock<Mount?>(nil)
    private let isUnderWay = Atomic<Bool>(false)

    /// The time-outs until everything is paused, until the other daemon has taken over, and for sending a message: seconds. Programs
    /// wait meanwhile.
    private static let (toRest, toTake, toSend) = (5.0, 30.0, 10.0)

    init(_ mounted: MountedView) { self.mounted = mounted }

    func begin(_ mount: Mount) { self.mount.withLock { $0 = mount } }

    /// Hands the mount over to the process at the other end, and exits, or sends the reason why
    /// not, and resumes.
    ///
    /// Runs on a thread that serves no requests, without locks.
    func handOver(over socket: borrowing UnixSocket, of server: ControlServer) {
        let soon = Clock.deadline(seconds: Self.toSend)
        guard let mount = mount.withLock({ $0 }), !isUnderWay.exchange(true, ordering: .acquiringAndReleasing) else {
            return Self.refuse("it is being mounted, or handed over already", over: socket, soon)
        }
        defer { isUnderWay.store(false, ordering: .releasing) }
        do {
            // The memory belongs to the other daemon: the system call filter lets this one create none with a descriptor.
            let file = FileDescriptor(owning: try socket.receive(descriptors: 1, deadline: soon)[0])
            // Writing to a file could wait for its filesystem, or for this very mount.
            guard MemoryFile.isOne(file) else { throw HandoverRefusal("the file for its state is not in memory") }
            try handOver(mount, into: file, over: socket, of: server)
        } catch let refusal as HandoverRefusal {
            Self.refuse(refusal.reason, over: socket, soon)
        } catch {
            Self.refuse("the other daemon does not answer: \(error)", over: socket, soon)
        }
    }

    private static func refuse(_ reason: String, over socket: borrowing UnixSocket, _ deadline: Int64) {
        try? HandoverMessage.refused(reason).send(over: socket, deadline: deadline)
    }

    /// Exits when the other daemon serves the mount, with everything paused: otherwise it would
    /// receive a request that it cannot answer.
    private func handOver(
        _ mount: Mount, into file: borrowing FileDescriptor, over socket: borrowing UnixSocket, of server: ControlServer
    ) throws {
        let deadline = Clock.deadline(seconds: Self.toRest)
        // Refusals that are not logged yet would be lost.
        mounted.logDenials()
        // Pausing begins when claims are drained: a claim may wait for the end of another, which arrives on a connection.
        while true {
            let isSettled = mounted.claims?.drain(until: deadline) ?? true
            guard isSettled else { throw HandoverRefusal("a claim is being granted or ended, which does not come to an end") }
            guard server.pause(until: deadline) else { throw HandoverRefusal("commands are under way that do not end") }
            if mounted.claims?.drain(until: Clock.monotonic + 20_000_000) ?? true { break }
            server.begin()
        }
        defer { server.begin() }
        let files = mounted.files
        let began = Clock.monotonic
        try files.quiesce(until: deadline)
        defer { files.endQuiesce() }
        try mounted.opening.withLock { _ in
            try mounted.state.withLock { state in
                if let reason = mounted.reasonAgainstHandover(state) { throw HandoverRefusal(reason) }
                var writer = HandoverWriter()
                HandoverHead(mount, mounted, pausedSince: began).write(to: &writer)
                writer.put(descriptor: server.listener)
                try mounted.handOver(state, to: &writer)
                writer.put(flag: mounted.claims != nil)
                if let claims = mounted.claims {
                    server.handOverSessions(to: &writer)
                    try claims.handOver(to: &writer)
                }
                writer.put(flag: true)
                state.counts.handOver(to: &writer)
                try send(writer, into: file, over: socket)
                do {
                    try settle(mount, over: socket)
                    // The next daemon has all open descriptors as well.
                    _exit(0)
                } catch {
                    // The other daemon may have recorded itself.
                    try? mount.store.register(mount.record)
                    throw error
                }
            }
        }
    }

    private func send(
        _ writer: borrowing HandoverWriter, into file: borrowing FileDescriptor, over socket: borrowing UnixSocket
    ) throws(Errno) {
        let deadline = Clock.deadline(seconds: Self.toTake)
        try writer.write(into: file)
        try HandoverMessage.state(bytes: UInt64(truncatingIfNeeded: writer.count), descriptors: UInt32(clamping: writer.descriptors.count))
            .send(over: socket, deadline: deadline)
        try socket.send(descriptors: writer.descriptors, deadline: deadline)
    }

    /// Returns when the other daemon serves the mount.
    private func settle(_ mount: Mount, over socket: borrowing UnixSocket) throws {
        switch try HandoverMessage.receive(over: socket, deadline: Clock.deadline(seconds: Self.toTake)) {
        case .ready: break
        case .cannot(let reason): throw HandoverRefusal(reason)
        default: throw Errno(EBADMSG)
        }
        let deadline = Clock.deadline(seconds: Self.toSend)
        // The service manager accepts this only from the process that it knows.
        if let (_, pid) = try? socket.peer() { ServiceManager.handOver(to: pid) }
        // From here on the other daemon's supervisor is responsible.
        mount.recovery?.arm(false)
        do {
            try HandoverMessage.yours.send(over: socket, deadline: deadline)
            // No time-out: as long as the other daemon lives, only that may serve. Its death is noticed at once.
            guard try HandoverMessage.receive(over: socket, deadline: .max) == .serving else { throw Errno(EBADMSG) }
        } catch {
            ServiceManager.handOver(to: getpid())
            mount.recovery?.arm(true)
            throw error
        }
        mount.mount.leave()
    }
}

/// The head of the handed-over state: the format of the rest, and the daemon's arguments.
struct HandoverHead {
    var options: MountOptions
    var view: ViewName
    var mountpoint: [UInt8]
    var since: Instant
    var record: GrantID
    var socket: String
    var generation: UInt32
    var identity: MountIdentity
    var temporary: String?
    /// The socket of the service manager, or nil for a daemon that is not a service.
    var notifySocket: String?
    /// When programs began to wait, by `Clock.monotonic`.
    var pausedSince: Int64

    /// The format's version. A daemon that does not know it leaves the mount to the old one.
    /// Versions from the first one on are read.
    private static let (firstVersion, version): (UInt32, UInt32) = (2, 6)
    private static let mark: UInt64 = 0x6772_616E_7466_7331

    init(_ mount: HandingOver.Mount, _ mounted: MountedView, pausedSince: Int64) {
        (options, view, mountpoint, since) = (mounted.options, mounted.view, mounted.mountpoint, mounted.since)
        (record, socket, generation) = (mount.record.id, mount.record.socket, mounted.files.generation)
        (identity, temporary) = (mount.mount.identity, mount.temporary)
        notifySocket = getenv("NOTIFY_SOCKET").map { String(cString: $0) }
        self.pausedSince = pausedSince
    }

    func write(to state: inout HandoverWriter) {
        // For tests: writes what only another version would.
        let fault = InjectedFault.foreignState.setting
        state.put(Self.mark)
        state.put(fault == "earlier version" ? Self.firstVersion - 1 : fault == "later version" ? Self.version + 1 : Self.version)
        let layout = ViewFS.handoverLayout + (fault == "other layout" ? [1] : [])
        state.put(UInt64(truncatingIfNeeded: layout.count))
        for size in layout { state.put(size) }
        for flag in [
            options.readOnly, options.allowOther, options.allowSetID, options.allowDevices, options.noExecute, options.noAccessTime,
            options.noDirectoryAccessTime, options.submounts, options.recovers,
        ] { state.put(flag: flag) }
        state.put(text: options.cache.rawValue)
        state.put(text: options.idle.rawValue)
        state.put(Int64(truncatingIfNeeded: options.audit ?? -1))
        state.put(text: options.store ?? "")
        state.put(text: view.description)
        state.put(bytes: mountpoint)
        state.put(since.nanoseconds)
        state.put(grant: record)
        state.put(text: socket)
        state.put(generation)
        state.put(identity.device.major)
        state.put(identity.device.minor)
        state.put(identity.id)
        state.put(identity.number ?? 0)
        state.put(text: temporary ?? "")
        state.put(text: notifySocket ?? "")
        state.put(pausedSince)
        state.put(options.auditKinds.rawValue)
        state.put(text: options.owners?.userText ?? "")
        state.put(text: options.owners?.groupText ?? "")
    }

    /// EPROTO if a daemon of another version has written it.
    init(from state: inout HandoverReader) throws(Errno) {
        guard try state.take(UInt64.self) == Self.mark else { throw Errno(EPROTO) }
        let version: UInt32 = try state.take()
        guard (Self.firstVersion...Self.version).contains(version) else { throw Errno(EPROTO) }
        state.version = version
        var layout: [UInt32] = []
        for _ in 0..<(try state.takeCount(ofAtLeast: 4)) { layout.append(try state.take()) }
        guard layout == ViewFS.handoverLayout else { throw Errno(EPROTO) }
        options = MountOptions()
        options.readOnly = try state.takeFlag()
        options.allowOther = try state.takeFlag()
        options.allowSetID = try state.takeFlag()
        options.allowDevices = try state.takeFlag()
        options.noExecute = try state.takeFlag()
        options.noAccessTime = try state.takeFlag()
        options.noDirectoryAccessTime = try state.takeFlag()
        options.submounts = try state.takeFlag()
        options.recovers = try state.takeFlag()
        guard let cache = CacheMode(rawValue: try state.takeText()), let idle = IdleMode(rawValue: try state.takeText()) else {
            throw Errno(EBADMSG)
        }
        (options.cache, options.idle) = (cache, idle)
        let audit: Int64 = try state.take()
        options.audit = audit < 0 ? nil : Int(truncatingIfNeeded: audit)
        let store = try state.takeText()
        options.store = store.isEmpty ? nil : store
        guard let view = try? ViewName(try state.takeText()) else { throw Errno(EBADMSG) }
        self.view = view
        mountpoint = try state.takeBytes()
        since = Instant(nanoseconds: try state.take())
        record = try state.takeGrant()
        socket = try state.takeText()
        generation = try state.take()
        let device = DeviceNumber(major: try state.take(), minor: try state.take())
        let (id, number): (UInt64, UInt64) = (try state.take(), try state.take())
        identity = MountIdentity(device: device, id: id, number: number == 0 ? nil : number)
        let temporary = try state.takeText()
        self.temporary = temporary.isEmpty ? nil : temporary
        let notifySocket = try state.takeText()
        self.notifySocket = notifySocket.isEmpty ? nil : notifySocket
        pausedSince = try state.take()
        // Since version 5.
        if version >= 5 { options.auditKinds = AuditKinds(rawValue: try state.take()) }
        // Since version 6.
        if version >= 6 {
            let (users, groups) = (try state.takeText(), try state.takeText())
            if !users.isEmpty {
                guard let map = try? OwnerMap(users: users, groups: groups) else { throw Errno(EBADMSG) }
                options.owners = map
            }
        }
    }
}

extension HandoverWriter {
    mutating func put(text: String) { put(bytes: Array(text.utf8)) }
}

extension HandoverReader {
    mutating func takeText() throws(Errno) -> String { String(decoding: try takeBytes(), as: UTF8.self) }
}
