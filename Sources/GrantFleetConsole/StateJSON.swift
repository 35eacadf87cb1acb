import GrantFleet
import GrantModel

/// What the page is told. Names and reasons are a stranger's: what cannot be printed, or turns a line round, is written out, and what a host says is cut to what people read: by scalars, because a thousand marks can stand on one letter.
enum StateJSON {
    static func text(_ text: String, most: Int = 4_096) -> JSONValue {
        .string(VisibleText.of(String(String.UnicodeScalarView(text.unicodeScalars.prefix(most)))))
    }

    static func time(_ instant: Instant?) -> JSONValue { instant.map { .integer($0.nanoseconds / 1_000_000) } ?? .null }

    static func of(_ picture: FleetPicture) -> JSONValue {
        // What a host says of grants that are none is nobody's business.
        let known = Set(picture.grants.map(\.id.description))
        return .object([
            "lease": .integer(picture.lease), "revision": .integer(picture.revision),
            "hosts": .array(picture.hosts.map { host($0, known, picture) }), "grants": .array(picture.grants.map { grant($0, picture) }),
            "flaws": .array(picture.flaws.prefix(20).map { text($0.description, most: 300) }),
        ])
    }

    private static func host(_ host: FleetHost, _ known: Set<String>, _ picture: FleetPicture) -> JSONValue {
        let wanted = picture.wanted(of: host)
        return .object([
            "id": text(host.id, most: 100), "labels": text(host.labels.description, most: 1_000),
            "live": .bool(host.lease != nil), "registered": .bool(host.registered != nil),
            "lags": .bool(host.lease != nil && host.applied < wanted),
            "applied": .integer(host.applied), "wanted": .integer(wanted),
            "until": time(picture.end(of: host)), "clock": .integer(host.clock), "version": text(host.version, most: 40),
            "problems": .integer(Int64(host.problems.keys.count { known.contains($0) })),
        ])
    }

    private static func grant(_ grant: FleetGrant, _ picture: FleetPicture) -> JSONValue {
        var counts: [FleetPicture.Standing: Int64] = [:]
        var problems: Int64 = 0
        for host in picture.hosts {
            guard let standing = picture.standing(of: host, to: grant) else { continue }
            counts[standing, default: 0] += 1
            if standing == .confirmed, host.problems[grant.id.description] != nil { problems += 1 }
        }
        return .object([
            "id": .string(grant.id.description), "view": text(grant.view.description), "name": text(grant.name.description),
            "path": text(grant.path), "access": .string(grant.access.rawValue), "state": .string(grant.state(at: picture.time).rawValue),
            "for": text(grant.hosts.description), "expires": time(grant.expires), "by": text(grant.by, most: 200),
            "revision": .integer(grant.revision), "confirmed": .integer(counts[.confirmed] ?? 0),
            "waiting": .integer(counts[.waiting] ?? 0), "gone": .integer(counts[.gone] ?? 0), "problems": .integer(problems),
        ])
    }

    /// One grant on every host that it is for; nil when the fleet has none with this id.
    static func standings(of id: String, in picture: FleetPicture) -> JSONValue? {
        guard let grant = picture.grants.first(where: { $0.id.description == id }) else { return nil }
        let rows = picture.hosts.compactMap { host -> JSONValue? in
            guard let standing = picture.standing(of: host, to: grant) else { return nil }
            let (behind, overflows) = grant.revision.subtractingReportingOverflow(host.applied)
            return .object([
                "host": text(host.id, most: 100), "standing": .string(standing.rawValue),
                "behind": .integer(overflows ? .max : max(0, behind)), "until": time(standing == .waiting ? picture.end(of: host) : nil),
                "problem": host.problems[id].map { text($0, most: 300) } ?? .null,
            ])
        }
        return .object(["id": .string(id), "revision": .integer(grant.revision), "hosts": .array(rows)])
    }
}
