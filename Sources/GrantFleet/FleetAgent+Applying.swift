import GrantAdministration
import GrantModel
import GrantStore
import GrantSystem

// The threads that listen for changes of the fleet, and apply them to this host.
extension FleetAgent {
    /// Watches the change signal, from the last revision seen.
    func listen() {
        var next: Int64?
        while !isEnding {
            do throws(EtcdFailure) {
                if next == nil {
                    let found = try listening.read(FleetKeys.changeSignal)
                    shared.withLock { $0.wanted = max($0.wanted, found.entry?.modified ?? found.revision) }
                    next = found.revision + 1
                    wakeApplying()
                }
                try listening.watch(FleetKeys.changeSignal, from: next ?? 1, goesOn: { [self] in !isEnding }) { [self] events in
                    next = events.revision + 1
                    handle(events)
                    return !isEnding
                }
            } catch {
                // After a compaction everything is read again. All other errors are reported by the thread that renews.
                if case .compacted = error { next = nil }
                ThreadSleep.milliseconds(300)
            }
        }
    }

    /// Handles signals. One that concerns none of this host's audiences counts as applied at once.
    private func handle(_ events: EtcdClient.Events) {
        let audiences = events.puts.map { entry -> [String]? in
            (try? JSONValue(text: entry.value))?["audiences"]?.items?.compactMap(\.string)
        }
        shared.withLock { shared in
            let isOurs =
                !events.deletes.isEmpty || audiences.contains { $0.map { !$0.allSatisfy { !shared.audiences.contains($0) } } ?? true }
            // Only if nothing was pending before.
            let wasCurrent = shared.stored >= max(shared.wanted, shared.leaseRevision) && shared.stored > 0
            shared.wanted = max(shared.wanted, events.puts.map(\.modified).max() ?? events.revision)
            if !isOurs, wasCurrent { shared.stored = shared.wanted }
        }
        wakeApplying()
    }

    /// Applies changes as long as the agent runs.
    func applyLoop() {
        var failed: String?
        // Searches again for directories that were missing.
        var nextRetry = Clock.monotonic
        var version: Int64?
        while !isEnding {
            waitToApply(milliseconds: 1_000)
            if isEnding { return }
            let (isBehind, hasProblems, retriesProblems) = shared.withLock { shared in
                defer { shared.retriesProblems = false }
                return (
                    shared.stored < max(shared.wanted, shared.leaseRevision) || shared.stored == 0, !shared.problems.isEmpty,
                    shared.retriesProblems
                )
            }
            do throws(GrantError) {
                if isBehind || (hasProblems && (retriesProblems || Clock.monotonic >= nextRetry)) {
                    try apply()
                    nextRetry = Clock.monotonic + 2_000_000_000
                }
                // Grants that are closed until this host knows all are opened at once. Others need no renewal before its time.
                let isAwaited = shared.withLock { shared in
                    defer { shared.awaitsRenewal = false }
                    return shared.awaitsRenewal
                }
                if isAwaited { wakeRenewing() }
                // Changes by other processes: by a command of this host's administrator.
                let current = try store.dataVersion()
                if isBehind || current != version {
                    try findRevokedHere()
                    version = current
                }
                try publish()
                failed = nil
            } catch {
                if error.description != failed { log(.error, error.description) }
                failed = error.description
                ThreadSleep.milliseconds(200)
            }
        }
    }

    /// Reads all grants for this host as of one revision, and reconciles the local store. Waiting for the mounts is left to a thread of
    /// its own.
    private func apply() throws(GrantError) {
        let (entries, revision, audiences) = try read()
        var (desired, problems): ([FleetDesiredGrant], [GrantID: String]) = ([], [:])
        let known = Dictionary(try store.grants().map { ($0.id, $0) }, uniquingKeysWith: { first, _ in first })
        let skew = applying.clockDifference ?? 0
        for entry in entries {
            let grant: FleetGrant
            do throws(GrantError) {
                grant = try FleetGrant(entry)
            } catch {
                // An unreadable grant gives nothing, and withdraws what it gave before.
                log(.error, error.description)
                if let id = entry.key.split(separator: "/").last.flatMap({ GrantID($0) }) {
                    problems[id] = error.description
                    if let own = known[id] { desired.append(Self.withdrawal(of: own)) }
                }
                continue
            }
            guard grant.hosts.matches(host: host, audiences.labels) else { continue }
            desired.append(desiredGrant(grant, known[grant.id], skew, &problems))
        }
        let result = try store.reconcile(desired, by: administrator.actor)
        // The previous agent may have stored something, and ended before all mounts had confirmed it.
        let isFirst = shared.withLock { $0.batches == 0 }
        let changed =
            result.changed
            + known.values.filter { own in
                isFirst && own.fleetActivation != nil && !result.changed.contains { $0.id == own.id }
            }
        for (id, reason) in result.refused { problems[id] = reason }
        for (id, problem) in problems where shared.withLock({ $0.problems[id] }) != problem { log(.warning, "grant \(id): \(problem)") }
        let active = (try? store.grants().count { $0.fleetActivation != nil && $0.state == .active }) ?? 0
        let batch = shared.withLock { shared in
            shared.activeGrants = active
            shared.batches += 1
            if !changed.isEmpty { shared.unconfirmed[shared.batches] = shared.stored }
            shared.stored = max(shared.stored, revision)
            (shared.problems, shared.audiences) = (problems, audiences.list)
            shared.active = Dictionary(
                desired.filter(\.isActive).map { ($0.id, $0.activation) }, uniquingKeysWith: { first, _ in first })
            return shared.batches
        }
        if !changed.isEmpty { confirm(changed, result.orphans, batch) }
    }

    /// Finds the fleet's active grants that were revoked on this host.
    private func findRevokedHere() throws(GrantError) {
        let revoked = try store.grants().filter { $0.fleetActivation != nil && $0.state == .revoked }
        shared.withLock { shared in
            shared.revokedHere = Set(revoked.filter { shared.active[$0.id] == $0.fleetActivation }.map(\.id))
        }
    }

    private static func withdrawal(of own: Grant) -> FleetDesiredGrant {
        FleetDesiredGrant(
            id: own.id, view: own.view, name: own.name, access: own.access, isActive: false, expires: own.expires,
            coordination: own.coordination, rules: own.rules, activation: own.fleetActivation ?? 0, created: own.created)
    }

    private func desiredGrant(_ grant: FleetGrant, _ own: Grant?, _ skew: Int64, _ problems: inout [GrantID: String]) -> FleetDesiredGrant {
        var desiredGrant = FleetDesiredGrant(
            id: grant.id, view: grant.view, name: grant.name, access: grant.access, isActive: grant.state == .active,
            expires: grant.expires,
            coordination: grant.coordination, rules: grant.rules, activation: grant.activation, created: grant.created)
        desiredGrant.by = grant.by
        // A wrong clock cannot judge an expiry.
        if desiredGrant.isActive, grant.expires != nil, abs(skew) > FleetAgent.maxClockSkew {
            problems[grant.id] = "the clocks of this host and of etcd differ by \(abs(skew)) seconds, and it expires"
            desiredGrant.isActive = false
            // It must be opened again once the clocks agree.
            desiredGrant.activation = own?.fleetActivation.map { min($0, grant.activation - 1) } ?? 0
        }
        guard desiredGrant.isActive, own == nil else { return desiredGrant }
        let found =
            grant.shared.map { administrator.bookmark(of: $0, view: grant.view, access: grant.access) }
            ?? administrator.bookmark(ofFleetDirectory: grant.path, view: grant.view, access: grant.access)
        switch found {
        case .success(let bookmark): desiredGrant.bookmark = bookmark
        case .failure(let error): problems[grant.id] = error.cause.map { "\(grant.place): \($0)" } ?? error.description
        }
        return desiredGrant
    }

    /// The maximum difference of the clocks, in seconds.
    static let maxClockSkew: Int64 = 60

    private func read() throws(GrantError) -> (entries: [EtcdEntry], revision: Int64, audiences: (list: [String], labels: Labels)) {
        let what = "the fleet's grants cannot be read"
        // What it was registered as is known from the last time, and seldom wrong: so one request is enough.
        var registration = shared.withLock { $0.registration }
        while true {
            let known = registration
            let audiences = known?.labels.audiences(of: host) ?? []
            let answer: EtcdAnswer
            do throws(EtcdFailure) {
                answer = try applying.transaction(
                    [.modified(FleetKeys.registry(host), known?.modified ?? -1)],
                    then: audiences.map { .readPrefix(FleetKeys.grants(for: $0)) }, otherwise: [.read(FleetKeys.registry(host))])
            } catch {
                // etcd refuses the whole request where a part of it is no longer permitted, as when labels were taken away.
                guard known != nil else { throw error.error(what) }
                shared.withLock { $0.registration = nil }
                registration = nil
                continue
            }
            if let known, answer.succeeded { return (answer.found.flatMap { $0 }, answer.revision, (audiences, known.labels)) }
            guard let entry = answer.found.first?.first else {
                throw GrantError(.permission, what, cause: "the fleet does not know “\(host)” any more")
            }
            let current = Registration(modified: entry.modified, labels: FleetAgent.labels(in: entry))
            shared.withLock { $0.registration = current }
            registration = current
        }
    }

    private static func labels(in entry: EtcdEntry) -> Labels {
        guard let json = try? JSONValue(text: entry.value), case .object(let members)? = json["labels"] else { return Labels() }
        return Labels(members.compactMapValues(\.string))
    }

    /// Asks the mounts until all have confirmed, and then publishes that.
    private func confirm(_ grants: [Grant], _ orphans: [GrantID], _ batch: Int) {
        let work: @Sendable () -> Void = { [self] in
            var pause: UInt32 = 100
            while (try? administrator.confirm(grants, timeout: 10))?.areConfirmed != true {
                // The next agent asks again.
                if isEnding { return }
                // Each try searches all processes for holders of dead mounts, and there may be many such threads.
                pause = min(pause * 2, 2_000)
                ThreadSleep.milliseconds(pause)
            }
            if !orphans.isEmpty {
                try? store.remove(orphans, by: administrator.actor)
                // Now their names are unknown instead of refused. It does not matter when a mount
                // is told.
                _ = try? administrator.confirm(grants.filter { orphans.contains($0.id) }, timeout: 1)
            }
            shared.withLock { shared in
                shared.unconfirmed[batch] = nil
                // Their names are free for other grants.
                if !orphans.isEmpty { shared.retriesProblems = true }
            }
            wakeApplying()
        }
        do throws(Errno) {
            try WorkerThread.start("fleet-confirm", work).detach()
        } catch {
            work()
        }
    }

    /// Publishes this host's state in etcd, if it has changed.
    private func publish() throws(GrantError) {
        let (lease, instance, revision, problems, published) = shared.withLock {
            ($0.lease, $0.instance, $0.watermark, $0.toldProblems, $0.published)
        }
        if lease == 0 || revision == 0 || (revision == published.revision && problems == published.problems && lease == published.lease) {
            return
        }
        let json = JSONValue.object([
            "revision": .integer(revision), "version": .string(version), "clock": .integer(applying.clockDifference ?? 0),
            "problems": .object(
                Dictionary(problems.map { ($0.key.description, JSONValue.string($0.value)) }, uniquingKeysWith: { first, _ in first })),
        ])
        let answer = try FleetStore.mapping("the fleet is not told how far this host is") { () throws(EtcdFailure) in
            try applying.transaction(
                [.value(FleetKeys.agent(host), Array(instance.utf8))], then: [.put(FleetKeys.state(host), json.text, lease: lease)])
        }
        if answer.succeeded { shared.withLock { $0.published = (revision, problems, lease, answer.revision) } }
    }
}
