import GrantAdministration
import GrantModel
import GrantStore
import GrantSystem

// What the fleet says, made true on this host.
extension FleetAgent {
    /// Listens to the bell, from where it was heard last.
    func listen() {
        var next: Int64?
        while !isEnding {
            do throws(EtcdFailure) {
                if next == nil {
                    let found = try listening.read(FleetKeys.bell)
                    shared.withLock { $0.wanted = max($0.wanted, found.entry?.modified ?? found.revision) }
                    next = found.revision + 1
                    wakeApplying()
                }
                try listening.watch(FleetKeys.bell, from: next ?? 1, goesOn: { [self] in !isEnding }) { [self] events in
                    next = events.revision + 1
                    hear(events)
                    return !isEnding
                }
            } catch {
                // What was forgotten, a look shows. Of everything else the thread that renews speaks.
                if case .compacted = error { next = nil }
                ThreadSleep.milliseconds(300)
            }
        }
    }

    /// A change that concerns none of this host's audiences is done at once.
    private func hear(_ events: EtcdClient.Events) {
        let rung = events.puts.map { entry -> [String]? in
            (try? JSONValue(text: entry.value))?["audiences"]?.items?.compactMap(\.string)
        }
        shared.withLock { shared in
            let isOurs = !events.deletes.isEmpty || rung.contains { $0.map { !$0.allSatisfy { !shared.audiences.contains($0) } } ?? true }
            // Only where nothing was missing before.
            let wasCurrent = shared.stored >= max(shared.wanted, shared.leaseRevision) && shared.stored > 0
            shared.wanted = max(shared.wanted, events.puts.map(\.modified).max() ?? events.revision)
            if !isOurs, wasCurrent { shared.stored = shared.wanted }
        }
        wakeApplying()
    }

    /// Applies whatever is new, for as long as the agent runs.
    func applyAll() {
        var failed: String?
        // Directories that were not there are looked for again.
        var nextLook = Clock.monotonic
        while !isEnding {
            waitToApply(milliseconds: 1_000)
            if isEnding { return }
            let (isBehind, hasProblems, looksAgain) = shared.withLock { shared in
                defer { shared.looksAgain = false }
                return (
                    shared.stored < max(shared.wanted, shared.leaseRevision) || shared.stored == 0, !shared.problems.isEmpty,
                    shared.looksAgain
                )
            }
            do throws(GrantError) {
                if isBehind || (hasProblems && (looksAgain || Clock.monotonic >= nextLook)) {
                    try apply()
                    nextLook = Clock.monotonic + 2_000_000_000
                }
                try tell()
                failed = nil
            } catch {
                if error.description != failed { says(.error, error.description) }
                failed = error.description
                ThreadSleep.milliseconds(200)
            }
        }
    }

    /// Reads all grants for this host as they are at one revision, and makes the local store say so. Whoever waits for the mounts does it on a thread of his own.
    private func apply() throws(GrantError) {
        let (entries, revision, audiences) = try read()
        var (orders, problems): ([FleetOrder], [GrantID: String]) = ([], [:])
        let known = Dictionary(try store.grants().map { ($0.id, $0) }, uniquingKeysWith: { first, _ in first })
        let skew = applying.clockDifference ?? 0
        for entry in entries {
            let grant: FleetGrant
            do throws(GrantError) {
                grant = try FleetGrant(entry)
            } catch {
                // What cannot be read grants nothing, and takes away what it granted before.
                says(.error, error.description)
                if let id = entry.key.split(separator: "/").last.flatMap({ GrantID($0) }) {
                    problems[id] = error.description
                    if let own = known[id] { orders.append(Self.withdrawal(of: own)) }
                }
                continue
            }
            guard grant.hosts.matches(host: host, audiences.labels) else { continue }
            orders.append(order(grant, known[grant.id], skew, &problems))
        }
        let result = try store.obey(orders, by: administrator.actor)
        // The agent before this one may have stored something, and ended before all mounts had confirmed it.
        let isFirst = shared.withLock { $0.batches == 0 }
        let changed =
            result.changed
            + known.values.filter { own in
                isFirst && own.fleetActivation != nil && !result.changed.contains { $0.id == own.id }
            }
        for (id, reason) in result.refused { problems[id] = reason }
        for (id, problem) in problems where shared.withLock({ $0.problems[id] }) != problem { says(.warning, "grant \(id): \(problem)") }
        let active = (try? store.grants().count { $0.fleetActivation != nil && $0.state == .active }) ?? 0
        let batch = shared.withLock { shared in
            shared.activeGrants = active
            shared.batches += 1
            if !changed.isEmpty { shared.unconfirmed[shared.batches] = shared.stored }
            shared.stored = max(shared.stored, revision)
            (shared.problems, shared.audiences) = (problems, audiences.list)
            return shared.batches
        }
        // Grants that are to be opened wait for nothing else.
        wakeRenewing()
        if !changed.isEmpty { confirm(changed, result.strays, batch) }
    }

    private static func withdrawal(of own: Grant) -> FleetOrder {
        FleetOrder(
            id: own.id, view: own.view, name: own.name, access: own.access, isActive: false, expires: own.expires,
            coordination: own.coordination, activation: own.fleetActivation ?? 0, created: own.created)
    }

    private func order(_ grant: FleetGrant, _ own: Grant?, _ skew: Int64, _ problems: inout [GrantID: String]) -> FleetOrder {
        var order = FleetOrder(
            id: grant.id, view: grant.view, name: grant.name, access: grant.access, isActive: grant.state == .active,
            expires: grant.expires,
            coordination: grant.coordination, activation: grant.activation, created: grant.created)
        order.by = grant.by
        // An expiry means nothing to a clock that is wrong.
        if order.isActive, grant.expires != nil, abs(skew) > FleetAgent.mostSkew {
            problems[grant.id] = "the clocks of this host and of etcd differ by \(abs(skew)) seconds, and it expires"
            order.isActive = false
            // Once the clocks agree it is to be opened again.
            order.activation = own?.fleetActivation.map { min($0, grant.activation - 1) } ?? 0
        }
        guard order.isActive, own == nil else { return order }
        switch administrator.bookmark(ofFleetDirectory: grant.path, view: grant.view, access: grant.access) {
        case .success(let bookmark): order.bookmark = bookmark
        case .failure(let error): problems[grant.id] = error.cause.map { "\(grant.path): \($0)" } ?? error.description
        }
        return order
    }

    /// Seconds by which clocks may differ.
    static let mostSkew: Int64 = 60

    private func read() throws(GrantError) -> (entries: [EtcdEntry], revision: Int64, audiences: (list: [String], labels: Labels)) {
        let what = "the fleet's grants cannot be read"
        let registered = try FleetStore.mapping(what) { () throws(EtcdFailure) in try applying.read(FleetKeys.registry(host)) }
        guard let entry = registered.entry else { throw GrantError(.permission, what, cause: "the fleet does not know “\(host)” any more") }
        let labels = FleetAgent.labels(in: entry)
        let audiences = labels.audiences(of: host)
        let answer = try FleetStore.mapping(what) { () throws(EtcdFailure) in
            try applying.transaction(
                [.modified(FleetKeys.registry(host), entry.modified)],
                then: audiences.map { .readPrefix(FleetKeys.grants(for: $0)) }, otherwise: [])
        }
        // Its labels have changed meanwhile.
        guard answer.succeeded else { return try read() }
        return (answer.found.flatMap { $0 }, answer.revision, (audiences, labels))
    }

    private static func labels(in entry: EtcdEntry) -> Labels {
        guard let json = try? JSONValue(text: entry.value), case .object(let members)? = json["labels"] else { return Labels() }
        return Labels(members.compactMapValues(\.string))
    }

    /// Asks the mounts until all have confirmed, and says so.
    private func confirm(_ grants: [Grant], _ strays: [GrantID], _ batch: Int) {
        let work: @Sendable () -> Void = { [self] in
            var pause: UInt32 = 100
            while (try? administrator.confirm(grants, timeout: 10))?.areConfirmed != true {
                // Whoever is started next asks again.
                if isEnding { return }
                // What is left of a daemon that has died is looked for among all processes, and there may be many such threads.
                pause = min(pause * 2, 2_000)
                ThreadSleep.milliseconds(pause)
            }
            if !strays.isEmpty {
                try? store.remove(strays, by: administrator.actor)
                // Now their names are unknown instead of refused. Nothing hangs on when a mount hears of it.
                _ = try? administrator.confirm(grants.filter { strays.contains($0.id) }, timeout: 1)
            }
            shared.withLock { shared in
                shared.unconfirmed[batch] = nil
                // Their names are free for others.
                if !strays.isEmpty { shared.looksAgain = true }
            }
            wakeApplying()
        }
        do throws(Errno) {
            try WorkerThread.start("fleet-confirm", work).detach()
        } catch {
            work()
        }
    }

    /// Says in etcd how far this host is, when that has changed.
    private func tell() throws(GrantError) {
        let (lease, instance, revision, problems, said) = shared.withLock { ($0.lease, $0.instance, $0.watermark, $0.problems, $0.said) }
        if lease == 0 || revision == 0 || (revision == said.revision && problems == said.problems && lease == said.lease) { return }
        let json = JSONValue.object([
            "revision": .integer(revision), "version": .string(version), "clock": .integer(applying.clockDifference ?? 0),
            "problems": .object(
                Dictionary(problems.map { ($0.key.description, JSONValue.string($0.value)) }, uniquingKeysWith: { first, _ in first })),
        ])
        let answer = try FleetStore.mapping("the fleet is not told how far this host is") { () throws(EtcdFailure) in
            try applying.transaction(
                [.value(FleetKeys.agent(host), Array(instance.utf8))], then: [.put(FleetKeys.state(host), json.text, lease: lease)])
        }
        if answer.succeeded { shared.withLock { $0.said = (revision, problems, lease, answer.revision) } }
    }
}
