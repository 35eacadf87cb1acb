import GrantFleet
import GrantModel

/// The state for the page. Names and reasons are untrusted: invisible characters are escaped, and
/// texts of hosts are cut to a readable length.
enum StateJSON {
    static func text(_ text: String, most: Int = 4_096) -> JSONValue { .string(VisibleText.of(VisibleText.cut(text, to: most))) }

    /// The entries that are compared with others of their kind.
    static func name(_ text: String, most: Int = 4_096) -> JSONValue { .string(VisibleText.name(VisibleText.cut(text, to: most))) }

    static func time(_ instant: Instant?) -> JSONValue { instant.map { .integer($0.nanoseconds / 1_000_000) } ?? .null }

    static func of(_ snapshot: FleetSnapshot) -> JSONValue {
        // Reports of hosts about unknown grants are omitted.
        let known = Set(snapshot.grants.map(\.id.description))
        return .object([
            "lease": .integer(snapshot.lease), "revision": .integer(snapshot.revision),
            "hosts": .array(snapshot.hosts.map { host($0, known, snapshot) }),
            "grants": .array(snapshot.grants.map { grant($0, snapshot) }),
            "flaws": .array(snapshot.invalidEntries.prefix(20).map { text($0.description, most: 300) }),
        ])
    }

    private static func host(_ host: FleetHost, _ known: Set<String>, _ snapshot: FleetSnapshot) -> JSONValue {
        let wanted = snapshot.wanted(of: host)
        return .object([
            "id": name(host.id, most: 100), "labels": name(host.labels.description, most: 1_000),
            "live": .bool(host.lease != nil), "registered": .bool(host.registered != nil),
            "lags": .bool(host.lease != nil && host.applied < wanted),
            "applied": .integer(host.applied), "wanted": .integer(wanted),
            "until": time(snapshot.end(of: host)), "clock": .integer(host.clock), "version": text(host.version, most: 40),
            "problems": .integer(Int64(host.problems.keys.count { known.contains($0) })),
        ])
    }

    private static func grant(_ grant: FleetGrant, _ snapshot: FleetSnapshot) -> JSONValue {
        var counts: [FleetSnapshot.HostStatus: Int64] = [:]
        var problems: Int64 = 0
        for host in snapshot.hosts {
            guard let status = snapshot.status(of: host, for: grant) else { continue }
            counts[status, default: 0] += 1
            if status == .confirmed, host.problems[grant.id.description] != nil { problems += 1 }
        }
        return .object([
            "id": .string(grant.id.description), "view": name(grant.view.description), "name": name(grant.name.description),
            "path": name(grant.place), "access": .string(grant.access.rawValue), "state": .string(grant.state(at: snapshot.time).rawValue),
            "for": text(grant.hosts.description), "rules": text(rules(grant)), "expires": time(grant.expires),
            "by": name(grant.by, most: 200),
            "revision": .integer(grant.revision), "confirmed": .integer(counts[.confirmed] ?? 0),
            "waiting": .integer(counts[.waiting] ?? 0), "gone": .integer(counts[.gone] ?? 0), "problems": .integer(problems),
        ])
    }

    private static func rules(_ grant: FleetGrant) -> String {
        grant.rules.lines.map { "\($0.name) \($0.patterns)" }.joined(separator: "; ")
    }

    /// Returns one grant's status on every host, or nil if the fleet has no grant with this id.
    static func hostStatuses(of id: String, in snapshot: FleetSnapshot) -> JSONValue? {
        guard let grant = snapshot.grants.first(where: { $0.id.description == id }) else { return nil }
        let rows = snapshot.hosts.compactMap { host -> JSONValue? in
            guard let status = snapshot.status(of: host, for: grant) else { return nil }
            let (behind, overflows) = grant.revision.subtractingReportingOverflow(host.applied)
            return .object([
                "host": name(host.id, most: 100), "standing": .string(status.rawValue),
                "behind": .integer(overflows ? .max : max(0, behind)), "until": time(status == .waiting ? snapshot.end(of: host) : nil),
                "problem": host.problems[id].map { text($0, most: 300) } ?? .null,
            ])
        }
        return .object(["id": .string(id), "revision": .integer(grant.revision), "hosts": .array(rows)])
    }
}
