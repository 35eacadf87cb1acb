import Glibc
import GrantAdministration
import GrantModel
import GrantStore
import GrantSystem
import Synchronization

/// Does on one host what the fleet says: grants in the local store, has the mounts confirm, and tells the fleet how far it is. As long as it can renew its lease in etcd, and knows all that
/// was changed, it says to the daemons of this host until when the fleet's grants are valid; when it cannot they withdraw them by themselves.
///
/// Three threads: one renews, and waits for nothing else; one applies; one hears of changes. What is heard is a bell alone. What is true is read, all of it at one revision, so a watch that
/// breaks or misses something costs time until the next renewal and nothing else.
public final class FleetAgent: @unchecked Sendable {
    // Safe to share: what changes is behind `shared`, and `state` belongs to the thread that renews.
    let host: String
    let store: GrantStore
    let administrator: GrantAdministrator
    let renewing: EtcdClient
    let applying: EtcdClient
    let listening: EtcdClient
    let version: String
    let says: @Sendable (SystemLog.Level, String) -> Void
    let shared = Lock(Shared())
    private let lock: FileLock
    private let stateFile: String
    private var state: AgentState
    private let wakesRenewing = Semaphore()
    private let wakesApplying = Semaphore()
    private var lastSaid: String?
    private var wasOpen = false
    /// Belongs to the thread that renews, as `state` does.
    private var report = AgentReport()

    struct Shared {
        /// Of the fleet; nil until it was read.
        var format: FleetFormat?
        /// The lease under which this agent speaks; 0: none.
        var lease: Int64 = 0
        var instance = ""
        /// The revision at which the lease was taken: nothing is opened before all was read that was so by then.
        var leaseRevision: Int64 = 0
        /// All that is true at this revision is in the local store.
        var stored: Int64 = 0
        /// What the last renewal has seen changed.
        var wanted: Int64 = 0
        /// Changes that some mount has not confirmed, each with the last revision at which all was confirmed but for others before it: a change may be of any revision behind that.
        var unconfirmed: [Int: Int64] = [:]
        var batches = 0
        var audiences: [String] = []
        var problems: [GrantID: String] = [:]
        /// Of the fleet, in the local store.
        var activeGrants = 0
        /// What could not be done may be done now.
        var looksAgain = false
        /// What was said to etcd last, and at which revision of etcd.
        var said: (revision: Int64, problems: [GrantID: String], lease: Int64, written: Int64) = (0, [:], 0, 0)
        var isEnding = false
        /// For tests: says that all is so before the mounts have confirmed it, which the test with faults has to find.
        let isHasty = getenv("GRANTFS_TEST_EARLY_WATERMARK") != nil

        /// How far this host is.
        var watermark: Int64 { isHasty ? stored : min(unconfirmed.values.min() ?? stored, stored) }
    }

    /// `.alreadyExists` when an agent runs here for the same store; `.notFound` when the host is in no fleet.
    public init(
        store: GrantStore, probe: DirectoryProbe, version: String, says: @escaping @Sendable (SystemLog.Level, String) -> Void
    ) throws(GrantError) {
        let file = FleetCredentials.place(host: true, store: store.directory)
        let credentials: FleetCredentials
        do throws(GrantError) {
            credentials = try FleetCredentials(file: file)
        } catch {
            guard error.code == .notFound else { throw error }
            throw GrantError(.notFound, "this host is in no fleet", cause: "\(file) is not there", advice: "grantfs fleet join FILE")
        }
        guard let host = credentials.host else {
            throw GrantError(.invalidFile, "\(file) is no host's", advice: "grantfs fleet invite HOST makes one")
        }
        do throws(Errno) {
            lock = try FileLock.take(store.directory + "/fleet/agent.lock", create: true)
        } catch {
            if error == Errno(EWOULDBLOCK) {
                throw GrantError(.alreadyExists, "an agent runs here already, for the store \(store.directory)")
            }
            throw GrantError(.system, "the agent cannot be started", cause: error.description)
        }
        (self.host, self.store, self.version, self.says) = (host, store, version, says)
        administrator = GrantAdministrator(store: store, probe: probe)
        renewing = try EtcdClient(credentials.settings, patience: 1_500)
        applying = try EtcdClient(credentials.settings)
        listening = try EtcdClient(credentials.settings)
        stateFile = store.directory + "/fleet/agent.json"
        state = AgentState(file: stateFile)
        // Of the agent before this one, whose lease this one goes on with.
        noteLease()
    }

    /// Works until `end` is called. `ready`: called once, when the first renewal was tried, whatever came of it.
    public func run(ready: () -> Void) throws(GrantError) {
        do throws(Errno) {
            try WorkerThread.start("fleet-apply") { [self] in applyAll() }.detach()
            try WorkerThread.start("fleet-listen") { [self] in listen() }.detach()
        } catch {
            throw GrantError(.system, "no thread could be started", cause: error.description)
        }
        var isFirst = true
        (report.pid, report.started) = (Int64(getpid()), Clock.realtime)
        var next = Clock.monotonic
        while !isEnding {
            let seconds = renew()
            if isFirst { ready() }
            isFirst = false
            next = max(next + Int64(seconds * 1e9), Clock.monotonic)
            // Whoever has stored what was missing wakes it before.
            if wakesRenewing.wait(until: next) { next = Clock.monotonic }
        }
    }

    /// Has `run` return. The lease is left: it says until when the mounts of this host show what was granted.
    public func end() {
        shared.withLock { $0.isEnding = true }
        wakesRenewing.post()
        wakesApplying.post()
    }

    var isEnding: Bool { shared.withLock { $0.isEnding } }
    func wakeApplying() { wakesApplying.post() }
    func wakeRenewing() { wakesRenewing.post() }
    func waitToApply(milliseconds: Int) { wakesApplying.waitForAny(within: milliseconds) }

    // MARK: renewing

    /// One renewal. Returns the seconds until the next.
    private func renew() -> Double {
        do throws(GrantError) {
            try renewOnce()
            report.renewals &+= 1
            if lastSaid != nil { says(.notice, "the fleet is heard of again") }
            lastSaid = nil
        } catch {
            report.failures &+= 1
            if error.description != lastSaid { says(.error, error.description) }
            lastSaid = error.description
        }
        tellMeasurers()
        let lease = shared.withLock { $0.format?.lease } ?? 5
        return max(0.3, min(Double(lease) / 5, 5))
    }

    private func renewOnce() throws(GrantError) {
        let what = "the fleet's grants on this host are not renewed"
        if state.lease == 0 { try takeLease(what) }
        // Before it is asked for: the lease lasts from then at the least.
        let asked = BootClock.now
        let (seconds, term): (Int64, Int64)
        do throws(EtcdFailure) {
            (seconds, term) = try renewing.renewLease(state.lease)
        } catch {
            if error == .noSuchLease { dropLease() }
            throw error.error(what)
        }
        let answer = try FleetStore.mapping(what) { () throws(EtcdFailure) in
            try renewing.transaction(
                [.value(FleetKeys.agent(host), Array(state.instance.utf8))],
                then: [.read(FleetKeys.format), .read(FleetKeys.bell), .read(FleetKeys.registry(host)), .read(FleetKeys.state(host))],
                otherwise: [.read(FleetKeys.agent(host))])
        }
        guard answer.succeeded, answer.found.count == 4 else {
            dropLease()
            throw GrantError(
                .alreadyExists, what, cause: "another agent speaks for “\(host)”",
                advice: "two machines must not have one host's invitation; invite the second by a name of its own")
        }
        // A leader that was replaced renews what its successor lets end.
        guard answer.term == term else { throw GrantError(.system, what, cause: "another member of etcd leads now") }
        (report.renewed, report.lease) = (Clock.realtime, asked &+ seconds &* 1_000_000_000)
        guard let entry = answer.found[0].first else { throw GrantError(.storeDamaged, what, cause: "etcd has no fleet any more") }
        let format = try FleetFormat(entry.value)
        try remember(format, answer.revision, what)
        guard answer.found[2].first != nil else { throw GrantError(.permission, what, cause: "the fleet does not know “\(host)” any more") }
        // Without a bell nobody knows what was changed: everything is read each time.
        let changed = max(answer.found[1].first?.modified ?? answer.revision, answer.found[2].first?.modified ?? 0)
        let isCurrent = shared.withLock { shared in
            shared.format = format
            shared.wanted = max(shared.wanted, changed)
            // An older word of its own that came late, over a network that was cut, has taken the place of the last one: it is said again.
            if answer.found[3].first?.modified ?? 0 != shared.said.written { shared.said.revision = 0 }
            return shared.stored >= max(changed, shared.leaseRevision) && shared.stored > 0
        }
        guard isCurrent else {
            wakesApplying.post()
            return
        }
        try extend(until: asked + FleetAgent.span(of: seconds))
    }

    /// Of a lease of so many seconds, the nanoseconds for which grants are shown to be valid: the rest is for their withdrawal.
    static func span(of seconds: Int64) -> Int64 { seconds * 1_000_000_000 / 3 * 2 }

    private func extend(until: Int64) throws(GrantError) {
        let before = FleetLease.read(in: store.runDirectory)
        let now = BootClock.now
        guard until > now else { return }
        if until > before { try FleetLease.write(until, in: store.runDirectory) }
        if before > now, wasOpen { return }
        wasOpen = true
        if before > 0, before <= now {
            report.fences &+= 1
            report.fenced = Clock.realtime &- (now &- before)
        }
        says(.notice, "the fleet's grants are open on this host")
        // Those that were shut meanwhile open at once, and not when their daemons look the next time.
        let (administrator, grants) = (
            administrator, (try? store.grants().filter { $0.fleetActivation != nil && $0.state == .active }) ?? []
        )
        _ = try? WorkerThread.start("fleet-open") { _ = try? administrator.confirm(grants, timeout: 5) }.detach()
    }

    private func tellMeasurers() {
        shared.withLock { shared in
            (report.stored, report.applied) = (shared.stored, shared.watermark)
            report.seen = max(shared.wanted, shared.leaseRevision, shared.stored)
            (report.grants, report.problems) = (Int64(shared.activeGrants), Int64(shared.problems.count))
        }
        report.write(in: store.runDirectory)
    }

    /// A fleet that is behind what this host has seen was restored from a backup, and has forgotten withdrawals since.
    private func remember(_ format: FleetFormat, _ revision: Int64, _ what: String) throws(GrantError) {
        if format.epoch < state.epoch || (format.epoch == state.epoch && revision < state.revision) {
            throw GrantError(
                .storeDamaged, what,
                cause: "etcd is at revision \(revision), and this host has seen \(state.revision): it was restored from a backup",
                advice: "see “Backup” in docs/fleet.md: grantfs fleet init --again")
        }
        // Not at each renewal: what it was a while ago is enough to notice that it is behind.
        let isNew = format.epoch != state.epoch
        guard isNew || revision >= state.revision + 100 || (revision > state.revision && shared.withLock { $0.stored > state.revision })
        else { return }
        (state.epoch, state.revision) = (format.epoch, revision)
        try state.write(to: stateFile)
    }

    private func takeLease(_ what: String) throws(GrantError) {
        let found = try FleetStore.mapping(what) { () throws(EtcdFailure) in try renewing.read(FleetKeys.format) }
        guard let entry = found.entry else { throw GrantError(.notFound, what, cause: "etcd has no fleet") }
        let format = try FleetFormat(entry.value)
        try remember(format, found.revision, what)
        let id = Int64(bitPattern: GrantID.random().low >> 1)
        let instance = GrantID.random().description
        let answer = try FleetStore.mapping(what) { () throws(EtcdFailure) -> EtcdAnswer in
            _ = try renewing.grantLease(id, seconds: format.lease)
            return try renewing.transaction(
                [.modified(FleetKeys.agent(host), 0)],
                then: [.put(FleetKeys.agent(host), Array(instance.utf8), lease: id)], otherwise: [.read(FleetKeys.agent(host))])
        }
        guard answer.succeeded || answer.found.first?.first?.value == Array(instance.utf8) else {
            try? renewing.revokeLease(id)
            throw GrantError(
                .alreadyExists, what, cause: "another agent speaks for “\(host)”, or has until its lease ends",
                advice: "two machines must not have one host's invitation; invite the second by a name of its own")
        }
        (state.lease, state.instance) = (id, instance)
        shared.withLock { shared in
            shared.format = format
            shared.leaseRevision = answer.revision
        }
        try state.write(to: stateFile)
        noteLease()
    }

    /// From here on nothing is renewed; the daemons shut what they show when their time is over.
    private func dropLease() {
        state.lease = 0
        noteLease()
        try? state.write(to: stateFile)
    }

    private func noteLease() {
        shared.withLock { shared in
            (shared.lease, shared.instance) = (state.lease, state.instance)
        }
    }
}
