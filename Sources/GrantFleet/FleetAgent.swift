import Glibc
import GrantAdministration
import GrantModel
import GrantStore
import GrantSystem
import Synchronization

/// Applies the fleet's state to one host: reconciles the grants in the local store, has the mounts confirm, and publishes its progress
/// to the fleet. While it can renew its lease in etcd and has applied every change, it extends the local lease (`FleetLease`). When it
/// cannot, the daemons close the fleet's grants by themselves.
///
/// It has three threads. One renews, and waits for nothing else. One applies changes. One listens
/// for them. A notification is only a signal. The state is always read as of one revision, so a
/// watch that breaks or misses something costs time until the next renewal and nothing else.
public final class FleetAgent: @unchecked Sendable {
    // Safe to share: mutable state is in `shared`. `state` belongs to the thread that renews.
    let host: String
    let store: GrantStore
    let administrator: GrantAdministrator
    let renewing: EtcdClient
    let applying: EtcdClient
    let listening: EtcdClient
    let version: String
    let log: @Sendable (SystemLog.Level, String) -> Void
    let shared = Lock(Shared())
    private let lock: FileLock
    private let stateFile: String
    private var state: AgentState
    /// A lease of which etcd was asked without an answer. It is asked for the same again. Belongs to the thread that renews.
    private var attempt: LeaseAttempt?
    private let renewWakeUp = Semaphore()
    private let applyWakeUp = Semaphore()
    private var lastLogged: String?
    private var wasOpen = false
    /// Belongs to the thread that renews, as `state` does.
    private var report = AgentReport()

    /// A host's entry in the fleet's registry.
    struct Registration {
        /// The revision at which it was written last.
        let modified: Int64
        let labels: Labels
    }

    /// A lease that is being taken, and the value by which the host's key then shows that it is this agent's.
    private struct LeaseAttempt {
        let id = Int64(bitPattern: GrantID.random().low >> 1)
        let instance = GrantID.random().description
        /// A term that was reached before the lease was granted.
        let term: Int64
    }

    struct Shared {
        /// The fleet's format, or nil until it was read.
        var format: FleetFormat?
        /// The etcd lease of this agent, or 0 if it has none.
        var lease: Int64 = 0
        var instance = ""
        /// The revision at which the lease was taken. Nothing is opened before everything up to it was read.
        var leaseRevision: Int64 = 0
        /// Everything up to this revision is in the local store.
        var stored: Int64 = 0
        /// The latest change seen by a renewal.
        var wanted: Int64 = 0
        /// Changes that some mount has not confirmed. Each has the last revision up to which everything was confirmed, other pending
        /// changes aside: the change may be of any later revision.
        var unconfirmed: [Int: Int64] = [:]
        var batches = 0
        var audiences: [String] = []
        var problems: [GrantID: String] = [:]
        /// The fleet's active grants for this host, with their activations.
        var active: [GrantID: Int64] = [:]
        /// Those of them that were revoked on this host.
        var revokedHere: Set<GrantID> = []
        /// The number of the fleet's active grants in the local store.
        var activeGrants = 0
        /// Whether what failed may succeed now.
        var retriesProblems = false
        /// The state last published in etcd, and the revision of that write.
        var published: (revision: Int64, problems: [GrantID: String], lease: Int64, written: Int64) = (0, [:], 0, 0)
        /// The registration of this host when its grants were last read.
        var registration: Registration?
        /// The last renewal has opened nothing, because something was not in the local store yet.
        var awaitsRenewal = false
        var isEnding = false
        /// For tests: publishes a change before the mounts have confirmed it, which the test with faults has to detect.
        let confirmsEarly = InjectedFault.earlyConfirmation.isPresent

        /// What the fleet is told of grants that are not shown here.
        var toldProblems: [GrantID: String] {
            problems.merging(revokedHere.map { ($0, "it was revoked on this host, by its administrator") }) { own, _ in own }
        }

        /// Whether the fleet has been told that this host has confirmed everything up to a revision.
        func hasPublished(_ revision: Int64) -> Bool {
            published.lease == lease && published.revision > 0 && published.revision >= revision
        }

        /// The revision up to which this host has confirmed everything.
        var watermark: Int64 { confirmsEarly ? stored : min(unconfirmed.values.min() ?? stored, stored) }
    }

    /// Makes the agent. Throws `.alreadyExists` if an agent runs for the same store, or `.notFound`
    /// if the host is in no fleet.
    public init(
        store: GrantStore, probe: DirectoryProbe, version: String, log: @escaping @Sendable (SystemLog.Level, String) -> Void
    ) throws(GrantError) {
        let file = FleetFiles.credentials(host: true, store: store.directory)
        let credentials: FleetCredentials
        do throws(GrantError) {
            credentials = try FleetCredentials(file: file)
        } catch {
            guard error.code == .notFound else { throw error }
            throw GrantError(.notFound, "this host is in no fleet", cause: "\(file) is not there", advice: "grantfs fleet join FILE")
        }
        guard let host = credentials.host else {
            throw GrantError(.invalidFile, "\(file) is not of a host", advice: "grantfs fleet invite HOST makes one")
        }
        do throws(Errno) {
            lock = try FileLock.take(store.directory + "/fleet/agent.lock", create: true)
        } catch {
            if error == Errno(EWOULDBLOCK) {
                throw GrantError(.alreadyExists, "an agent runs here already, for the store \(store.directory)")
            }
            throw GrantError(.system, "the agent cannot be started", cause: error.description)
        }
        (self.host, self.store, self.version, self.log) = (host, store, version, log)
        administrator = GrantAdministrator(store: store, probe: probe)
        renewing = try EtcdClient(credentials.settings, timeout: 1_500)
        applying = try EtcdClient(credentials.settings)
        listening = try EtcdClient(credentials.settings)
        stateFile = store.directory + "/fleet/agent.json"
        state = AgentState(file: stateFile)
        // From the previous agent, whose lease this one continues.
        shareLease()
    }

    /// Runs until `end` is called. `ready` is called once after the first try of a renewal,
    /// successful or not.
    public func run(ready: () -> Void) throws(GrantError) {
        do throws(Errno) {
            try WorkerThread.start("fleet-apply") { [self] in applyLoop() }.detach()
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
            // The thread that applies wakes it early when it has stored the missing grants.
            if renewWakeUp.wait(until: next) { next = Clock.monotonic }
        }
    }

    /// Makes `run` return. The lease stays, because the mounts serve the fleet's grants until it ends.
    public func end() {
        shared.withLock { $0.isEnding = true }
        renewWakeUp.post()
        applyWakeUp.post()
    }

    var isEnding: Bool { shared.withLock { $0.isEnding } }
    func wakeApplying() { applyWakeUp.post() }
    func wakeRenewing() { renewWakeUp.post() }
    func waitToApply(milliseconds: Int) { applyWakeUp.waitForAny(within: milliseconds) }

    // MARK: renewing

    /// Renews once. Returns the seconds until the next renewal.
    private func renew() -> Double {
        do throws(GrantError) {
            try renewOnce()
            report.renewals &+= 1
            if lastLogged != nil { log(.notice, "the fleet can be reached again") }
            lastLogged = nil
        } catch {
            report.failures &+= 1
            if error.description != lastLogged { log(.error, error.description) }
            lastLogged = error.description
        }
        writeReport()
        let lease = shared.withLock { $0.format?.lease } ?? 5
        return Self.pause(ofLease: lease, hasFailed: lastLogged != nil)
    }

    /// The seconds until the next renewal: a fifth of the lease. After a failure soon again, however long the lease is.
    static func pause(ofLease seconds: Int64, hasFailed: Bool) -> Double { max(0.3, min(Double(seconds) / 5, hasFailed ? 5 : 60)) }

    private func renewOnce() throws(GrantError) {
        let what = "the fleet's grants on this host are not renewed"
        var renewed = state.lease == 0 ? nil : try renewLease(what)
        // A leader that was replaced can let leases expire that its successor has renewed (etcd issue 15247). So a lease counts only in
        // the term in which it was taken.
        if renewed?.term != state.term {
            try takeLease(what)
            renewed = try renewLease(what)
        }
        guard let (asked, seconds, term) = renewed, term == state.term else {
            throw GrantError(.system, what, cause: "another member of etcd leads now")
        }
        let (answer, isAnnounced) = try FleetStore.mapping(what) { () throws(EtcdFailure) in try writeRenewal(asked) }
        guard answer.succeeded, answer.found.count == 5 else {
            dropLease()
            throw GrantError(
                .alreadyExists, what, cause: "another agent has the lease of “\(host)”",
                advice: "two machines must not share an invitation: invite the second by another name")
        }
        // A leader that was replaced may renew a lease that its successor lets expire.
        guard answer.term == term else { throw GrantError(.system, what, cause: "another member of etcd leads now") }
        (report.renewed, report.lease) = (Clock.realtime, asked &+ seconds &* 1_000_000_000)
        guard let entry = answer.found[0].first else { throw GrantError(.storeDamaged, what, cause: "etcd has no fleet any more") }
        let format = try FleetFormat(entry.value)
        try remember(format, answer.revision, what)
        guard answer.found[2].first != nil else { throw GrantError(.permission, what, cause: "the fleet does not know “\(host)” any more") }
        // Without the change signal the changes are unknown: everything is read each time.
        let changed = max(answer.found[1].first?.modified ?? answer.revision, answer.found[2].first?.modified ?? 0)
        let isCurrent = shared.withLock { shared in
            shared.format = format
            shared.wanted = max(shared.wanted, changed)
            // An older write of this agent arrived late, over a partitioned network, and has replaced the last one: it is published
            // again.
            if answer.found[3].first?.modified ?? 0 != shared.published.written { shared.published.revision = 0 }
            // A host that extends its lease without a word has said before that it has confirmed everything.
            let isKnown = isAnnounced || answer.found[1].isEmpty || shared.hasPublished(changed)
            let isCurrent = isKnown && shared.stored >= max(changed, shared.leaseRevision) && shared.stored > 0
            shared.awaitsRenewal = !isCurrent
            return isCurrent
        }
        guard isCurrent else {
            applyWakeUp.post()
            return
        }
        try extend(until: asked + FleetAgent.validity(of: min(seconds, format.lease)))
    }

    /// Reads the changes, in a transaction that writes: an etcd that refuses writes takes no
    /// revocation, so it must not extend a lease. A host that has not confirmed everything
    /// announces itself by a value that no other client can write. Administrators take a host that
    /// is silent for a whole lease for fenced. With a full database nothing can be announced.
    private func writeRenewal(_ asked: Int64) throws(EtcdFailure) -> (answer: EtcdAnswer, isAnnounced: Bool) {
        let announces = shared.withLock { !$0.hasPublished($0.wanted) }
        let send = { (operation: EtcdOperation) throws(EtcdFailure) in
            try self.renewing.transaction(
                [.value(FleetKeys.agent(self.host), Array(self.state.instance.utf8))],
                then: [
                    .read(FleetKeys.format), .read(FleetKeys.changeSignal), .read(FleetKeys.registry(self.host)),
                    .read(FleetKeys.state(self.host)), operation,
                ],
                otherwise: [.read(FleetKeys.agent(self.host))])
        }
        if announces {
            do throws(EtcdFailure) {
                return (try send(.put(FleetKeys.alive(host), Array("\(asked)".utf8), lease: state.lease)), true)
            } catch {
                guard error == .full else { throw error }
            }
        }
        return (try send(.delete(FleetKeys.none(host))), false)
    }

    /// Returns for how long a lease of so many seconds keeps grants valid, in nanoseconds. The rest is for closing them.
    static func validity(of seconds: Int64) -> Int64 { seconds * 1_000_000_000 / 3 * 2 }

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
        log(.notice, "the fleet's grants are open on this host")
        // Grants that were closed open at once, without waiting for their daemons' next check.
        let (administrator, grants) = (
            administrator, (try? store.grants().filter { $0.fleetActivation != nil && $0.state == .active }) ?? []
        )
        _ = try? WorkerThread.start("fleet-open") { _ = try? administrator.confirm(grants, timeout: 5) }.detach()
    }

    private func writeReport() {
        shared.withLock { shared in
            (report.stored, report.applied) = (shared.stored, shared.watermark)
            report.seen = max(shared.wanted, shared.leaseRevision, shared.stored)
            (report.grants, report.problems) = (Int64(shared.activeGrants), Int64(shared.problems.count))
        }
        report.write(in: store.runDirectory)
    }

    /// A fleet that is behind what this host has seen was restored from a backup, and has lost revocations.
    private func remember(_ format: FleetFormat, _ revision: Int64, _ what: String) throws(GrantError) {
        if format.epoch < state.epoch || (format.epoch == state.epoch && revision < state.revision) {
            throw GrantError(
                .storeDamaged, what,
                cause: "etcd is at revision \(revision), and this host has seen \(state.revision): it was restored from a backup",
                advice: "see “Backup” in docs/fleet.md: grantfs fleet init --again")
        }
        // Not at each renewal: a recent value is enough to detect that the fleet is behind.
        let isNew = format.epoch != state.epoch
        guard isNew || revision >= state.revision + 100 || (revision > state.revision && shared.withLock { $0.stored > state.revision })
        else { return }
        (state.epoch, state.revision) = (format.epoch, revision)
        try state.write(to: stateFile)
    }

    private func renewLease(_ what: String) throws(GrantError) -> (asked: Int64, seconds: Int64, term: Int64) {
        // Read before the request: the lease lasts at least from then on.
        let asked = BootClock.now
        do throws(EtcdFailure) {
            let (seconds, term) = try renewing.renewLease(state.lease)
            return (asked, seconds, term)
        } catch {
            if error == .noSuchLease { dropLease() }
            throw error.error(what)
        }
    }

    /// Takes a lease for this host, or exchanges the one it has: its keys then belong to the new lease, and the old one ends alone. Each
    /// has an instance of its own, so that a request which arrives late cannot give the keys back to an older lease.
    private func takeLease(_ what: String) throws(GrantError) {
        let attempt: LeaseAttempt
        if let former = self.attempt {
            attempt = former
        } else {
            attempt = LeaseAttempt(term: try FleetStore.mapping(what) { () throws(EtcdFailure) in try renewing.electedTerm() })
        }
        let found = try FleetStore.mapping(what) { () throws(EtcdFailure) in try renewing.read(FleetKeys.format) }
        guard let entry = found.entry else { throw GrantError(.notFound, what, cause: "etcd has no fleet") }
        let format = try FleetFormat(entry.value)
        try remember(format, found.revision, what)
        self.attempt = attempt
        let isExchange = state.lease != 0
        let (key, own) = (FleetKeys.agent(host), Array(attempt.instance.utf8))
        let answer = try FleetStore.mapping(what) { () throws(EtcdFailure) -> EtcdAnswer in
            _ = try renewing.grantLease(attempt.id, seconds: format.lease)
            return try renewing.transaction(
                [isExchange ? .value(key, Array(state.instance.utf8)) : .modified(key, 0)],
                then: [.put(key, own, lease: attempt.id), .put(FleetKeys.alive(host), own, lease: attempt.id)], otherwise: [.read(key)])
        }
        self.attempt = nil
        guard answer.succeeded || answer.found.first?.first?.value == own else {
            try? renewing.revokeLease(attempt.id)
            if isExchange { dropLease() }
            throw GrantError(
                .alreadyExists, what, cause: "another agent has the lease of “\(host)”, or its lease has not ended",
                advice: "two machines must not share an invitation: invite the second by another name")
        }
        (state.lease, state.instance, state.term) = (attempt.id, attempt.instance, answer.term == attempt.term ? attempt.term : 0)
        shared.withLock { shared in
            shared.format = format
            // A host that exchanges its lease has missed nothing.
            if !isExchange { shared.leaseRevision = answer.revision }
        }
        try state.write(to: stateFile)
        shareLease()
        // The host's state has to belong to the lease as well.
        applyWakeUp.post()
    }

    /// From here on nothing is renewed. The daemons close the grants when the local lease ends.
    private func dropLease() {
        state.lease = 0
        shareLease()
        try? state.write(to: stateFile)
    }

    private func shareLease() {
        shared.withLock { shared in
            (shared.lease, shared.instance) = (state.lease, state.instance)
        }
    }
}
