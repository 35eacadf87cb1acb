import GrantModel
import GrantStore
import GrantSystem

/// The grants of the fleet as an administrator sees and changes them. Each change is one transaction: what was looked at must not have changed meanwhile, else it is
/// looked at anew.
public final class FleetStore: Sendable {
    public let client: EtcdClient
    let actor: Actor
    /// How long what was done stays in etcd's log.
    static let logSeconds = 90.0 * 86_400
    /// How many grants one transaction changes: etcd takes 128 operations.
    static let batch = 30

    /// `.storeNewer`, `.notFound` when there is no fleet, and what keeps etcd from being asked.
    public init(_ client: EtcdClient, actor: Actor = .current()) throws(GrantError) {
        self.client = client
        self.actor = actor
        _ = try format()
    }

    static func mapping<Result>(_ what: String, _ body: () throws(EtcdFailure) -> Result) throws(GrantError) -> Result {
        do throws(EtcdFailure) {
            return try body()
        } catch {
            throw error.error(what)
        }
    }

    public func format() throws(GrantError) -> FleetFormat {
        let found = try Self.mapping("the fleet cannot be read") { () throws(EtcdFailure) in try client.read(FleetKeys.format) }
        guard let entry = found.entry else {
            throw GrantError(.notFound, "etcd has no fleet", advice: "grantfs fleet init makes one")
        }
        return try FleetFormat(entry.value)
    }

    /// All that can be read, by view and name, and what cannot.
    public func grants() throws(GrantError) -> (grants: [FleetGrant], flaws: [GrantError]) {
        let entries = try Self.mapping("the fleet's grants cannot be read") { () throws(EtcdFailure) in
            try client.list(FleetKeys.grants).entries
        }
        var (grants, flaws): ([FleetGrant], [GrantError]) = ([], [])
        for entry in entries {
            do throws(GrantError) { grants.append(try FleetGrant(entry)) } catch { flaws.append(error) }
        }
        grants.sort { ($0.view.description, $0.name.description) < ($1.view.description, $1.name.description) }
        return (grants, flaws)
    }

    /// Writes a new grant. `.alreadyExists` when the view has one of that name. Returns it with its revision.
    public func create(_ grant: FleetGrant) throws(GrantError) -> FleetGrant {
        var grant = grant
        grant.by = changer
        let key = FleetKeys.grant(grant)
        let id = Array(grant.id.description.utf8)
        let answer = try Self.mapping("“\(grant.name)” is not granted") { () throws(EtcdFailure) in
            try client.transaction(
                [.modified(FleetKeys.name(grant), 0), .modified(key, 0)],
                then: [.put(key, grant.json.text), .put(FleetKeys.name(grant), id)] + noting("granted", [grant]),
                otherwise: [.read(key), .read(FleetKeys.name(grant))])
        }
        if !answer.succeeded {
            // A try before this one, of which no answer came, may have written it.
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

    /// What `change` did.
    public struct Outcome: Sendable {
        public var grants: [FleetGrant]
        /// At which all of it is true.
        public var revision: Int64

        public init(grants: [FleetGrant], revision: Int64) { (self.grants, self.revision) = (grants, revision) }
    }

    /// Changes grants by `transform`, which is called anew for what somebody else has changed meanwhile; what it leaves as it is, is written only for `withdraws`. `.notFound` when one is gone.
    ///
    /// `withdraws`: they are withdrawn; where etcd's database is full the grants are deleted instead, which it takes.
    public func change(
        _ seen: [FleetGrant], _ event: String, withdraws: Bool = false,
        _ transform: (FleetGrant) throws(GrantError) -> FleetGrant
    ) throws(GrantError) -> Outcome {
        var outcome = Outcome(grants: [], revision: 0)
        for start in stride(from: 0, to: seen.count, by: Self.batch) {
            let part = try changePart(Array(seen[start..<min(start + Self.batch, seen.count)]), event, withdraws, transform)
            outcome.grants += part.grants
            outcome.revision = max(outcome.revision, part.revision)
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
                // A withdrawal is written also where it is one already: a restoration whose command was killed may be on its way yet, and compares with what it has seen.
                if isSame, !withdraws { continue }
                changed.append(new)
                operations.append(.put(FleetKeys.grant(new), new.json.text))
                if new.view != grant.view || new.name != grant.name {
                    conditions.append(.modified(FleetKeys.name(new), 0))
                    operations += [.put(FleetKeys.name(new), Array(new.id.description.utf8)), .delete(FleetKeys.name(grant))]
                }
            }
            if changed.isEmpty { return Outcome(grants: wanted, revision: wanted.map(\.revision).max() ?? 0) }
            let reads = current.map { EtcdOperation.read(FleetKeys.grant($0)) }
            let answer: EtcdAnswer
            do throws(EtcdFailure) {
                answer = try client.transaction(conditions, then: operations + noting(event, changed), otherwise: reads)
            } catch {
                guard error == .full, withdraws else { throw error.error(what) }
                return try delete(wanted)
            }
            if answer.succeeded {
                for index in wanted.indices where changed.contains(where: { $0.id == wanted[index].id }) {
                    wanted[index].revision = answer.revision
                }
                return Outcome(grants: wanted, revision: answer.revision)
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
        throw GrantError(.system, what, cause: "somebody else changes it all the time")
    }

    /// Deletes grants, and nothing else: etcd takes that also when its database is full.
    private func delete(_ grants: [FleetGrant]) throws(GrantError) -> Outcome {
        let answer = try Self.mapping("nothing is revoked") { () throws(EtcdFailure) in
            try client.transaction(
                then: grants.flatMap { [.delete(FleetKeys.grant($0)), .delete(FleetKeys.name($0))] } + [.delete(FleetKeys.bell)])
        }
        var grants = grants
        for index in grants.indices { grants[index].revision = answer.revision }
        return Outcome(grants: grants, revision: answer.revision)
    }

    /// Forgets grants that were removed. The log keeps what was.
    public func forget(_ grants: [FleetGrant]) throws(GrantError) {
        for start in stride(from: 0, to: grants.count, by: Self.batch) {
            let part = Array(grants[start..<min(start + Self.batch, grants.count)])
            _ = try Self.mapping("nothing is forgotten") { () throws(EtcdFailure) in
                try client.transaction(
                    then: part.flatMap { [EtcdOperation.delete(FleetKeys.grant($0)), .delete(FleetKeys.name($0))] }
                        + [Self.ringing(part.map(\.hosts.audience))])
            }
        }
    }

    /// What each change of grants writes beside them: the bell, and the log.
    private func noting(_ event: String, _ grants: [FleetGrant]) -> [EtcdOperation] {
        let subjects = JSONValue.array(
            grants.map {
                .object([
                    "id": .string($0.id.description), "view": .string($0.view.description), "name": .string($0.name.description),
                    "hosts": .string($0.hosts.description),
                ])
            })
        return [Self.ringing(grants.map(\.hosts.audience))] + logging(event, ("grants", subjects))
    }

    static func ringing(_ audiences: [String]) -> EtcdOperation {
        .put(FleetKeys.bell, JSONValue.object(["audiences": .array(Set(audiences).sorted().map { .string($0) })]).text)
    }
}
