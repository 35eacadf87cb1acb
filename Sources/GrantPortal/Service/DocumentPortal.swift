import Glibc
import GrantAdministration
import GrantModel
import GrantStore
import GrantSystem
import Synchronization

/// The service behind org.freedesktop.portal.Documents: takes calls, has a few workers answer them, and follows what others change.
///
/// Locking: what its parts say of themselves.
public final class DocumentPortal: @unchecked Sendable {
    // Safe to share: the bus is set before there are workers; the rest does not change or is locked.

    /// The mount that shows the documents.
    public struct Mount: Sendable {
        /// Absolute, canonical.
        public let path: [UInt8]
        /// Makes it, unless it is there; returns when it answers.
        let start: @Sendable () throws(GrantError) -> Void
        let end: @Sendable () -> Void
        /// Returns when it has ended, or after a second. Whether it has.
        let hasEnded: @Sendable () -> Bool

        public init(
            path: [UInt8], start: @escaping @Sendable () throws(GrantError) -> Void, end: @escaping @Sendable () -> Void,
            hasEnded: @escaping @Sendable () -> Bool
        ) { (self.path, self.start, self.end, self.hasEnded) = (path, start, end, hasEnded) }
    }

    enum Work: Sendable {
        case call(BusCall)
        case permissionsChanged(String)
        case grantsChanged
        /// The permission store is to be read as a whole.
        case load
        case takeOver(String)
    }

    static let name = "org.freedesktop.portal.Documents"
    static let object = "/org/freedesktop/portal/documents"
    static let transferInterface = "org.freedesktop.portal.FileTransfer"
    /// Who is told of changes, as a sender of work; no connection's name begins so.
    private static let others = "others"
    /// Documents of others are looked for, whose files may hang, while changes go on to be followed.
    private static let found = "found"
    /// The permission store may be slow to answer.
    private static let loading = "loading"
    private let isLoading = Atomic(false)

    let documents: Documents
    let mount: Mount
    let connections = Connections()
    let callers: CallerIdentification
    /// Looks whose a connection is that is new; calls do not wait for each other there.
    private let arrivals: CallerIdentification
    let transfers = FileTransfers()
    private let queue = CallQueue<Work>()
    /// The connection of the permission store: nobody else is listened to as if he were that.
    private let storeName = Lock<String?>(nil)
    private let dirty = Lock<Set<String>>([])
    private let isEnding = Atomic(false)
    private let say: @Sendable (SystemLog.Level, String) -> Void
    private(set) var bus: BusService?

    public init(_ administrator: GrantAdministrator, mount: Mount, say: @escaping @Sendable (SystemLog.Level, String) -> Void) {
        documents = Documents(administrator, say: say)
        (self.mount, self.say) = (mount, say)
        callers = CallerIdentification(bus: BusClient(), connections: connections)
        arrivals = CallerIdentification(bus: BusClient(), connections: connections)
    }

    /// Serves until `end`, or until the name is another's, or the bus has gone, which is an error (`.system`); then what was made for the session is withdrawn, and the
    /// mount ends. `.alreadyExists` when somebody has the name and keeps it, `.unsupported` when there is no bus. `ready`: when calls are answered.
    public func run(replaces: Bool, ready: () -> Void) throws(GrantError) {
        let bus = try connect(replaces: replaces)
        self.bus = bus
        // Nothing is shown before it is known who may what.
        var loaded = try documents.load()
        while loaded == nil, !isEnding.load(ordering: .acquiring) {
            usleep(500_000)
            loaded = try documents.load()
        }
        guard let missing = loaded else { return }
        try mount.start()
        defer {
            documents.endSession()
            mount.end()
        }
        do throws(Errno) {
            var workers = try (0..<CallerGroup.allWorkers).map { number throws(Errno) in
                try WorkerThread.start("portal-\(number)") { [self] in work(bus) }
            }
            workers.append(try WorkerThread.start("portal-callers") { [self] in receiveArrivals(bus) })
            try WorkerThread.start("portal-follow") { [self] in follow() }.detach()
            try WorkerThread.start("portal-mount") { [self] in watchMount() }.detach()
            defer {
                isEnding.store(true, ordering: .releasing)
                queue.end()
                for worker in workers { worker.join() }
            }
            for id in missing { queue.add(.takeOver(id), from: Self.found) }
            ready()
            try bus.run { lookAgain(bus) }
        } catch {
            throw GrantError(.system, "the session bus has gone", cause: error.description)
        }
    }

    /// From any thread.
    public func end() {
        isEnding.store(true, ordering: .releasing)
        bus?.end()
    }

    private func connect(replaces: Bool) throws(GrantError) -> BusService {
        do throws(Errno) {
            let bus = try BusService(
                path: Self.object, onCall: { [unowned self] in receive($0) }, isFull: { [unowned self] in queue.isFull })
            try bus.listen(
                to: "Changed", of: PermissionStore.service, at: PermissionStore.object, from: PermissionStore.service
            ) { [unowned self] values, sender in
                guard storeName.withLock({ $0 == sender }), values.count >= 2, values[0].text == PermissionStore.table,
                    let id = values[1].text, DocumentNames.isStoredID(id)
                else { return }
                permissionsChanged(id)
            }
            try listenToTheBus(bus)
            try bus.take(name: Self.name, replaces: replaces)
            return bus
        } catch {
            switch error.rawValue {
            case EEXIST:
                throw GrantError(
                    .alreadyExists, "the portal of documents is there already", cause: "somebody has the name \(Self.name)",
                    advice: "--replace takes it over")
            case ELIBACC: throw GrantError(.unsupported, "libsystemd.so.0 cannot be loaded", advice: "install the package libsystemd0")
            default: throw GrantError(.unsupported, "the session bus cannot be reached", cause: error.description)
            }
        }
    }

    private func listenToTheBus(_ bus: BusService) throws(Errno) {
        let daemon = "org.freedesktop.DBus"
        try bus.listen(to: "NameOwnerChanged", of: daemon, at: nil, from: daemon) { [unowned self] values, sender in
            guard sender == daemon, values.count == 3, let name = values[0].text, let owner = values[2].text else { return }
            if name == PermissionStore.service {
                storeName.withLock { $0 = owner.isEmpty ? nil : owner }
                if !owner.isEmpty { load() }
            }
            guard name.hasPrefix(":") else { return }
            if owner.isEmpty { connectionEnded(name) } else { connections.add(name) }
        }
        // What is there already; what comes and goes from now on is heard of.
        _ = lookAtConnections()
        try bus.listen(to: "NameLost", of: daemon, at: nil, from: daemon) { [unowned self] values, sender in
            guard sender == daemon, values.first?.text == Self.name, let bus = self.bus else { return }
            say(.notice, "somebody else is the portal of documents from now on")
            bus.end()
        }
    }

    /// Those that have gone; nil when the bus does not say.
    private func lookAtConnections() -> Set<String>? {
        let known = connections.names
        guard let names = askBus("ListNames", [])?.texts else { return nil }
        for name in names where name.hasPrefix(":") { connections.add(name) }
        let owner = askBus("GetNameOwner", [.text(PermissionStore.service)])?.text
        storeName.withLock { $0 = owner }
        return known.subtracting(names)
    }

    /// What has come, gone and changed while nobody listened.
    private func lookAgain(_ bus: BusService) {
        say(.warning, "a message of somebody's ended the connection to the bus, and there is another one")
        let gone = lookAtConnections() ?? []
        bus.whileListening { for name in gone { connectionEnded(name) } }
        for id in documents.state.withLock({ Array($0.documents.keys) }) { permissionsChanged(id) }
    }

    private func askBus(_ member: String, _ arguments: [BusValue]) -> BusValue? {
        let daemon = "org.freedesktop.DBus"
        return try? arrivals.bus.call(daemon, "/org/freedesktop/DBus", daemon, member, arguments.isEmpty ? "" : "s", arguments).first
    }

    private static let tooMuch = PortalError(.limitsExceeded, "Too many calls at once")

    /// On the listening thread.
    private func receive(_ call: BusCall) {
        if !queue.add(.call(call), call.load, from: call.sender) { bus?.refuseWhileListening(call, Self.tooMuch) }
    }

    /// On the listening thread: nobody waits any more for what the connection has asked, or takes what it holds out.
    private func connectionEnded(_ name: String) {
        connections.remove(name)
        transfers.endAll(of: name)
        for case .call(let call) in queue.forget(name) { bus?.forgetWhileListening(call) }
    }

    /// Says of new connections whose they are, one after the other.
    private func receiveArrivals(_ bus: BusService) {
        while let sender = queue.nextArrival() {
            for case .call(let call) in queue.settle(sender, as: arrivals.group(of: sender)) { bus.refuse(call, Self.tooMuch) }
            bus.wakeUp()
        }
    }

    private func permissionsChanged(_ id: String) {
        guard dirty.withLock({ $0.insert(id).inserted }) else { return }
        queue.add(.permissionsChanged(id), from: Self.others)
    }

    private func load() {
        guard !isLoading.exchange(true, ordering: .acquiringAndReleasing) else { return }
        queue.add(.load, from: Self.loading)
    }

    private func loadAgain() {
        // Whoever asks from here on means another reading.
        isLoading.store(false, ordering: .releasing)
        do throws(GrantError) {
            for id in try documents.load() ?? [] { queue.add(.takeOver(id), from: Self.found) }
        } catch {
            say(.error, "the documents cannot be read: \(error)")
        }
    }

    private func work(_ bus: BusService) {
        while let (sender, work) = queue.next() {
            switch work {
            case .call(let call): answer(call, bus)
            case .permissionsChanged(let id):
                dirty.withLock { _ = $0.remove(id) }
                if documents.followPermissions(of: id) { queue.add(.takeOver(id), from: Self.found) }
            case .grantsChanged: documents.followGrants()
            case .takeOver(let id): documents.takeOver(id)
            case .load: loadAgain()
            }
            queue.done(with: sender)
            bus.wakeUp()
        }
    }

    /// Looks four times a second whether somebody else has changed the grants, and every two seconds whether something is still to be asked of the permission store.
    private func follow() {
        let store = documents.administrator.store
        var last = try? store.dataVersion()
        var rounds = 0
        while !isEnding.load(ordering: .acquiring) {
            usleep(250_000)
            let now = try? store.dataVersion()
            if now != last, now != nil { queue.add(.grantsChanged, from: Self.others) }
            last = now
            rounds += 1
            if rounds % 8 == 0, documents.isBehind { load() }
        }
    }

    /// Makes the mount again when its daemon has ended by itself.
    private func watchMount() {
        while !isEnding.load(ordering: .acquiring) {
            guard mount.hasEnded(), !isEnding.load(ordering: .acquiring) else { continue }
            do throws(GrantError) {
                try mount.start()
                say(.warning, "the mount of documents had ended, and is there again")
            } catch {
                say(.error, "the mount of documents has ended: \(error)")
                usleep(5_000_000)
            }
        }
    }
}
