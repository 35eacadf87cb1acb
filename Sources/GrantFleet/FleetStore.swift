import GrantModel
import GrantStore
import GrantSystem

/// The fleet's grants, as an administrator sees and changes them. Each change is one transaction.
/// If the grants have changed since they were read, they are read again.
public final class FleetStore: Sendable {
    public let client: EtcdClient
    let actor: Actor
    /// The file in which the next command finds the silent hosts, or nil if nothing is recorded.
    let silenceFile: String?
    /// Tells the administrator about findings and actions beside the command.
    let note: @Sendable (String) -> Void
    /// The duration of hosts' leases in seconds. It never changes.
    public let lease: Int64
    /// How long entries stay in etcd's log, in seconds.
    static let logSeconds = 90.0 * 86_400
    /// The number of grants in one transaction, which etcd limits to 128 operations.
    static let batch = 30

    /// `.storeNewer`, `.notFound` if there is no fleet, and the errors of a request.
    public init(
        _ client: EtcdClient, actor: Actor = .current(), silenceFile: String? = nil, note: @escaping @Sendable (String) -> Void = { _ in }
    ) throws(GrantError) {
        (self.client, self.actor, self.silenceFile, self.note) = (client, actor, silenceFile, note)
        lease = try FleetStore.format(client).lease
    }

    static func mapping<Result>(_ what: String, _ body: () throws(EtcdFailure) -> Result) throws(GrantError) -> Result {
        do throws(EtcdFailure) {
            return try body()
        } catch {
            throw error.error(what)
        }
    }

    /// Does the same as `mapping`, for a request that changes something. `unknown` is the error if
    /// etcd may have executed it without an answer.
    static func writing<Result>(
        _ what: String, unknown: String, _ body: () throws(EtcdFailure) -> Result
    ) throws(GrantError) -> Result {
        do throws(EtcdFailure) {
            return try body()
        } catch {
            guard case .unanswered(let reason) = error else { throw error.error(what) }
            throw GrantError(
                .system, unknown, cause: "etcd was asked and has not answered: \(reason)",
                advice: "see grantfs list --fleet --all when etcd answers again: the command may be repeated")
        }
    }

    private static func unknown(_ grants: [FleetGrant], _ event: String) -> String {
        guard grants.count == 1 else { return "it is not known whether “\(grants[0].name)” and \(grants.count - 1) others are \(event)" }
        return "it is not known whether “\(grants[0].name)” is \(event)"
    }

    public func format() throws(GrantError) -> FleetFormat { try FleetStore.format(client) }

    private static func format(_ client: EtcdClient) throws(GrantError) -> FleetFormat {
        let found = try Self.mapping("the fleet cannot be read") { () throws(EtcdFailure) in try client.read(FleetKeys.format) }
        guard let entry = found.entry else {
            throw GrantError(.notFound, "etcd has no fleet", advice: "grantfs fleet init makes one")
        }
        return try FleetFormat(entry.value)
    }

    /// Returns all valid grants by view and name, and the errors of the others.
    public func grants() throws(GrantError) -> (grants: [FleetGrant], invalidEntries: [GrantError]) {
        let entries = try Self.mapping("the fleet's grants cannot be read") { () throws(EtcdFailure) in
            try client.list(FleetKeys.grants).entries
        }
        var (grants, invalidEntries): ([FleetGrant], [GrantError]) = ([], [])
        for entry in entries {
            do throws(GrantError) { grants.append(try FleetGrant(entry)) } catch { invalidEntries.append(error) }
        }
        grants.sort { ($0.view.description, $0.name.description) < ($1.view.description, $1.name.description) }
        return (grants, invalidEntries)
    }

    /// Writes a new grant, and returns it with its revision. Throws `.alreadyExists` if the view
    /// has one of that name.
    public func create(_ grant: FleetGrant) throws(GrantError) -> FleetGrant {
        var grant = grant
        grant.by = changer
        let key = FleetKeys.grant(grant)
        let id = Array(grant.id.description.utf8)
        let answer = try Self.writing("“\(grant.name)” is not granted", unknown: Self.unknown([grant], "granted")) {
            () throws(EtcdFailure) in
            try disarming { () throws(EtcdFailure) in
                try client.transaction(
                    [.modified(FleetKeys.name(grant), 0), .modified(key, 0)],
                    then: [.put(key, grant.json.text), .put(FleetKeys.name(grant), id)] + sideOperations("granted", [grant]),
                    otherwise: [.read(key), .read(FleetKeys.name(grant))])
            }
        }
        if !answer.succeeded {
            // An earlier try, whose answer was lost, may have written it.
            guard let own = answer.found.first?.first, own.value == grant.json.text else {
                throw GrantError(
                    .alreadyExists, "the fleet's view “\(grant.view)” has a grant named “\(grant.name)” already",
                    advice: "choose another with --name, or remove that one")
            }
            grant.revision = own.modified
            return grant
        }
        grant.revision = answer.revision
        return grant
    }

    /// The result of `change`.
    public struct Outcome: Sendable {
        public var grants: [FleetGrant]
        /// The revision as of which all of it is in effect.
        public var revision: Int64
        /// Those that were so already: nothing was written.
        public var unchanged: Set<GrantID> = []

        public init(grants: [FleetGrant], revision: Int64) { (self.grants, self.revision) = (grants, revision) }
    }

    /// Changes grants by `transform`, which is called again for those that were changed meanwhile.
    /// Unchanged ones are written only if `withdraws`. Throws `.notFound` if one does not exist.
    ///
    /// `withdraws`: the grants are revoked. If etcd's database is full they are deleted instead, which still works.
    public func change(
        _ seen: [FleetGrant], _ event: String, withdraws: Bool = false,
        _ transform: (FleetGrant) throws(GrantError) -> FleetGrant
    ) throws(GrantError) -> Outcome {
        var outcome = Outcome(grants: [], revision: 0)
        for start in stride(from: 0, to: seen.count, by: Self.batch) {
            let part: Outcome
            do throws(GrantError) {
                part = try changePart(Array(seen[start..<min(start + Self.batch, seen.count)]), event, withdraws, transform)
            } catch {
                guard start > 0 else { throw error }
                throw GrantError(
                    error.code, "only the first \(start) of \(seen.count) grants are \(event)",
                    cause: [error.message, error.cause].compactMap { $0 }.joined(separator: ": "),
                    advice: "give the command again for the others, the first of which is “\(seen[start].name)”")
            }
            outcome.grants += part.grants
            outcome.revision = max(outcome.revision, part.revision)
            outcome.unchanged.formUnion(part.unchanged)
        }
        return outcome
    }

    private func changePart(
        _ seen: [FleetGrant], _ event: String, _ withdraws: Bool, _ transform: (FleetGrant) throws(GrantError) -> FleetGrant
    ) throws(GrantError) -> Outcome {
        var current = seen
        let what = "nothing is \(event)"
        for _ in 0..<50 {
            var (conditions, operations, changed): ([EtcdCondition], [EtcdOperation], [FleetGrant]) = ([], [], [])
            var wanted: [FleetGrant] = []
            for grant in current {
                var new = try transform(grant)
                let isSame = new == grant
                if !isSame || withdraws { new.by = changer }
                wanted.append(new)
                conditions.append(.modified(FleetKeys.grant(grant), grant.revision))
                // A revocation is written even if the grant is revoked already: a restore by a killed command may still be in flight,
                // and compares with the revision it has seen.
                if isSame, !withdraws { continue }
                changed.append(new)
                operations.append(.put(FleetKeys.grant(new), new.json.text))
                if new.view != grant.view || new.name != grant.name {
                    conditions.append(.modified(FleetKeys.name(new), 0))
                    operations += [.put(FleetKeys.name(new), Array(new.id.description.utf8)), .delete(FleetKeys.name(grant))]
                }
            }
            var outcome = Outcome(grants: wanted, revision: wanted.map(\.revision).max() ?? 0)
            outcome.unchanged = Set(wanted.map(\.id)).subtracting(changed.map(\.id))
            if changed.isEmpty { return outcome }
            let reads = current.map { EtcdOperation.read(FleetKeys.grant($0)) }
            let answer = try Self.writing(what, unknown: Self.unknown(wanted, event)) { () throws(EtcdFailure) -> EtcdAnswer? in
                do throws(EtcdFailure) {
                    return try disarming { () throws(EtcdFailure) in
                        try client.transaction(conditions, then: operations + sideOperations(event, changed), otherwise: reads)
                    }
                } catch {
                    guard error == .full, withdraws else { throw error }
                    return nil
                }
            }
            guard let answer else { return try delete(wanted) }
            if answer.succeeded {
                for index in wanted.indices where !outcome.unchanged.contains(wanted[index].id) {
                    outcome.grants[index].revision = answer.revision
                }
                outcome.revision = answer.revision
                return outcome
            }
            var anew: [FleetGrant] = []
            for (grant, found) in zip(current, answer.found) {
                guard let entry = found.first else { throw GrantError(.notFound, "the fleet has no grant “\(grant.name)” any more") }
                anew.append(try FleetGrant(entry))
            }
            if anew == current {
                throw GrantError(.alreadyExists, what, cause: "the view has a grant of that name already")
            }
            current = anew
        }
        throw GrantError(.system, what, cause: "another administrator changes it all the time")
    }

    /// Deletes grants without anything else: etcd accepts that even if its database is full.
    private func delete(_ grants: [FleetGrant]) throws(GrantError) -> Outcome {
        let answer = try Self.writing("nothing is revoked", unknown: Self.unknown(grants, "revoked")) { () throws(EtcdFailure) in
            try disarming { () throws(EtcdFailure) in
                try client.transaction(
                    then: grants.flatMap { [.delete(FleetKeys.grant($0)), .delete(FleetKeys.name($0))] }
                        + [.delete(FleetKeys.changeSignal)])
            }
        }
        var grants = grants
        for index in grants.indices { grants[index].revision = answer.revision }
        return Outcome(grants: grants, revision: answer.revision)
    }

    /// Deletes grants that were removed. Their entries in the log stay.
    public func forget(_ grants: [FleetGrant]) throws(GrantError) {
        for start in stride(from: 0, to: grants.count, by: Self.batch) {
            let part = Array(grants[start..<min(start + Self.batch, grants.count)])
            _ = try Self.mapping("the grants are revoked, but not forgotten") { () throws(EtcdFailure) in
                try disarming { () throws(EtcdFailure) in
                    try client.transaction(
                        then: part.flatMap { [EtcdOperation.delete(FleetKeys.grant($0)), .delete(FleetKeys.name($0))] }
                            + [Self.signal(part.map(\.hosts.audience))])
                }
            }
        }
    }

    /// Returns the operations that accompany each change of grants: the change signal and the log entry.
    private func sideOperations(_ event: String, _ grants: [FleetGrant]) -> [EtcdOperation] {
        let subjects = JSONValue.array(
            grants.map {
                .object([
                    "id": .string($0.id.description), "view": .string($0.view.description), "name": .string($0.name.description),
                    "hosts": .string($0.hosts.description),
                ])
            })
        return [Self.signal(grants.map(\.hosts.audience))] + logging(event, ("grants", subjects))
    }

    static func signal(_ audiences: [String]) -> EtcdOperation {
        .put(FleetKeys.changeSignal, JSONValue.object(["audiences": .array(Set(audiences).sorted().map { .string($0) })]).text)
    }
}
