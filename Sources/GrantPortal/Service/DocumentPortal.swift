import Glibc
import GrantAdministration
import GrantModel
import GrantStore
import GrantSystem
import Synchronization

/// The service behind org.freedesktop.portal.Documents: takes calls, has a few workers answer them, and follows what others change.
///
/// Locking: each part has its own, which it documents.
public final class DocumentPortal: @unchecked Sendable {
    // Safe to share: the bus is set before there are workers. The rest does not change or is
    // locked.

    /// The mount that shows the documents.
    public struct Mount: Sendable {
        /// Absolute, canonical.
        public let path: [UInt8]
        /// Announces that this service will show documents by it, so that a service that ends does
        /// not unmount it.
        let join: @Sendable () throws(GrantError) -> Void
        /// Makes the mount, unless it exists, and returns when it answers.
        let start: @Sendable () throws(GrantError) -> Void
        let end: @Sendable () -> Void
        /// Returns when it has ended, or after a second. Whether it has.
        let hasEnded: @Sendable () -> Bool

        public init(
            path: [UInt8], join: @escaping @Sendable () throws(GrantError) -> Void,
            start: @escaping @Sendable () throws(GrantError) -> Void, end: @escaping @Sendable () -> Void,
            hasEnded: @escaping @Sendable () -> Bool
        ) { (self.path, self.join, self.start, self.end, self.hasEnded) = (path, join, start, end, hasEnded) }
    }

    enum Work: Sendable {
        case call(BusCall)
        case permissionsChanged(String)
        case grantsChanged
        /// Signals of the permission store must be taken from the bus, and signals that the bus has
        /// dropped must be found.
        case hear
        /// The permission store must be read as a whole.
        case load
        case takeOver(String)
    }

    static let name = "org.freedesktop.portal.Documents"
    static let object = "/org/freedesktop/portal/documents"
    static let transferInterface = "org.freedesktop.portal.FileTransfer"
    // Senders of this service's own work in the queue. No connection's name looks like one. Work of
    // one sender is done in order, so each kind that may take long has its own.
    /// Changes that others have made.
    private static let others = "others"
    /// Files of documents that existed before, which may hang.
    private static let found = "found"
    /// Reading the permission store as a whole, which may be slow.
    private static let loading = "loading"
    /// Reading what the permission store has announced, which waits for questions under way.
    private static let hearing = "hearing"
    private let isLoading = Atomic(false)

    let documents: Documents
    let mount: Mount
    let connections = Connections()
    let callers: CallerIdentification
    /// Finds out who has a new connection, by a connection to the bus of its own, so that this does not wait for `callers`.
    let arrivals: CallerIdentification
    let transfers = FileTransfers()
    private let queue = CallQueue<Work>()
    /// The permission store's connection. Its signals are accepted from no other one.
    private let storeName = Lock<String?>(nil)
    private let dirty = Lock<Set<String>>([])
    private let isEnding = Atomic(false)
    let losses = BusLosses()
    private let say: @Sendable (SystemLog.Level, String) -> Void
    private(set) var bus: BusService?

    public init(_ administrator: GrantAdministrator, mount: Mount, say: @escaping @Sendable (SystemLog.Level, String) -> Void) {
        documents = Documents(administrator, say: say)
        (self.mount, self.say) = (mount, say)
        callers = CallerIdentification(bus: BusClient(), connections: connections)
        arrivals = CallerIdentification(bus: BusClient(), connections: connections)
    }

    /// Serves until `end` is called, until another service takes the name, or until the bus has
    /// gone, which is an error (`.system`). Then it withdraws the grants made for the session, and
    /// ends the mount. `ready` is called when calls are answered.
    ///
    /// - Throws: `.alreadyExists` if another service has the name and keeps it, `.unsupported` if
    ///   there is no bus, or `.system`.
    public func run(replaces: Bool, ready: () -> Void) throws(GrantError) {
        let bus = try connect(replaces: replaces)
        self.bus = bus
        // The mount is joined before the former service ends, so that files open through it stay
        // open.
        try mount.join()
        guard let lock = try takeOver(bus) else { return }
        // Nothing is shown before the permissions are known.
        var loaded = try documents.load()
        while loaded == nil, !isEnding.load(ordering: .acquiring) {
            usleep(500_000)
            loaded = try documents.load()
        }
        guard let missing = loaded else { return }
        try mount.start()
        defer {
            documents.handOver(lock.release)
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
                // The next service does not wait for a worker whose file hangs. That worker changes
                // nothing any more.
                documents.handOver(lock.release)
                for worker in workers { worker.join() }
            }
            for id in missing { queue.add(.takeOver(id), from: Self.found) }
            ready()
            try bus.run { lookAgain(bus) }
        } catch {
            throw GrantError(.system, "the session bus has gone", cause: error.description)
        }
    }

    /// How long a service that has lost the name may take to hand over, in nanoseconds: as long as one question to the permission store.
    private static let handOverTime: Int64 = 10_000_000_000

    /// Waits until the service that had the name before changes nothing any more. Returns nil when
    /// this service is to end instead.
    private func takeOver(_ bus: BusService) throws(GrantError) -> ServiceLock? {
        guard let id = askBus("GetId")?.text else { throw GrantError(.unsupported, "the session bus does not say which one it is") }
        do throws(Errno) {
            let lock = try ServiceLock(in: documents.administrator.store.runDirectory, bus: id)
            var former: (holder: ServiceLock.Holder, deadline: Int64)?
            while !isEnding.load(ordering: .acquiring) {
                if try lock.take() { return lock }
                let holder = lock.holder
                // It has ended meanwhile.
                if holder == .nobody {
                    usleep(20_000)
                    continue
                }
                if holder == .stranger { throw Errno(EBUSY) }
                let isNew = former == nil || former?.holder != holder
                guard isNew || Clock.monotonic > former?.deadline ?? 0 else {
                    usleep(20_000)
                    continue
                }
                // A third service may have taken the name meanwhile, and hold the lock.
                guard askBus("GetNameOwner", [.text(Self.name)])?.text == bus.name else {
                    say(.notice, "another program is the portal of documents from now on")
                    return nil
                }
                let process: pid_t? = if case .service(let pid) = holder { pid } else { nil }
                let service = "the former service (\(process.map { "process \($0)" } ?? "a process that is not visible here"))"
                if isNew {
                    say(.notice, "waits until \(service) has handed over the documents")
                } else if let process {
                    // A service that is killed changes nothing either. What it was doing is made good as at every start.
                    say(.warning, "\(service) has not handed over the documents, and is killed")
                    lock.end(process)
                } else {
                    say(.warning, "\(service) has not handed over the documents")
                }
                former = (holder, Clock.monotonic + Self.handOverTime)
            }
            return nil
        } catch {
            let cause =
                error == Errno(EBUSY)
                ? "a program that is not a service has a lock on \(ServiceLock.name) in the store's directory run" : error.description
            throw GrantError(.system, "the documents cannot be taken over from the former service", cause: cause)
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
                to: "Changed", about: PermissionStore.table, of: PermissionStore.service, at: PermissionStore.object,
                from: PermissionStore.service
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
                    .alreadyExists, "a portal of documents runs already", cause: "another program has the name \(Self.name)",
                    advice: "--replace takes it over")
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
        // Existing connections. Later ones are announced by signals.
        lookAtConnections(bus)
        try bus.listen(to: "NameLost", of: daemon, at: nil, from: daemon) { [unowned self] values, sender in
            guard sender == daemon, values.first?.text == Self.name, let bus = self.bus else { return }
            say(.notice, "another program is the portal of documents from now on")
            bus.end()
        }
    }

    /// Looks which connections there are, and which one is the permission store's. When the bus does not answer, `lookForLosses` tries it again.
    func lookAtConnections(_ bus: BusService) {
        let known = connections.names
        do throws(BusError) {
            let names = Set(try arrivals.bus.ask("ListNames")?.texts ?? [])
            for name in names where name.hasPrefix(":") { connections.add(name) }
            let owner: String?
            do throws(BusError) {
                owner = try arrivals.bus.ask("GetNameOwner", [.text(PermissionStore.service)])?.text
            } catch {
                guard error.isAbsence else { throw error }
                owner = nil
            }
            storeName.withLock { $0 = owner }
            bus.whileListening { for name in known.subtracting(names) { connectionEnded(name) } }
        } catch {
            losses.isUnsure.store(true, ordering: .relaxed)
        }
    }

    /// Finds the changes made while there was no connection to the bus.
    private func lookAgain(_ bus: BusService) {
        say(.warning, "what others have sent blocked the connection to the bus, and there is another one")
        lookAtConnections(bus)
        for id in documents.state.withLock({ Array($0.documents.keys) }) { permissionsChanged(id) }
    }

    private func askBus(_ member: String, _ arguments: [BusValue] = []) -> BusValue? { (try? arrivals.bus.ask(member, arguments)) ?? nil }

    private static let tooMuch = PortalError(.limitsExceeded, "Too many calls at once")

    /// On the listening thread.
    private func receive(_ call: BusCall) {
        if !queue.add(.call(call), call.load, from: call.sender) { bus?.refuseWhileListening(call, Self.tooMuch) }
    }

    /// A connection has ended: its calls need no answers any more, and its transfers end. On the listening thread.
    private func connectionEnded(_ name: String) {
        connections.remove(name)
        transfers.endAll(of: name)
        for case .call(let call) in queue.forget(name) { bus?.forgetWhileListening(call) }
    }

    /// Finds out who has each new connection, one after the other.
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

    func load() {
        guard !isLoading.exchange(true, ordering: .acquiringAndReleasing) else { return }
        queue.add(.load, from: Self.loading)
    }

    private func loadAgain() {
        // What asks for a reading from here on needs another one: this one may miss what it asks for.
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
            case .hear:
                documents.permissions.hear()
                lookForLosses(bus)
            case .takeOver(let id): documents.takeOver(id)
            case .load: loadAgain()
            }
            queue.done(with: sender)
            bus.wakeUp()
        }
    }

    /// Checks four times a second whether another program has changed the grants, and every two
    /// seconds whether the permission store must still be asked.
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
            guard rounds % 8 == 0 else { continue }
            queue.add(.hear, from: Self.hearing)
            if documents.isBehind { load() }
        }
    }

    /// Makes the mount again when its daemon has ended by itself.
    private func watchMount() {
        while !isEnding.load(ordering: .acquiring) {
            guard mount.hasEnded(), !isEnding.load(ordering: .acquiring) else { continue }
            do throws(GrantError) {
                try mount.start()
                say(.warning, "the mount of documents had ended, and is mounted again")
            } catch {
                say(.error, "the mount of documents has ended: \(error)")
                usleep(5_000_000)
            }
        }
    }
}
