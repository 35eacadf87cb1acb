import GrantCommandLine
import GrantCommandSupport
import GrantFleet
import GrantModel
import GrantSystem

/// Grants of the fleet with each host's status for them: `repair --fleet` and `list NAME --fleet`.
enum FleetGrantReport {
    /// Shows one grant, all, or those that a host does not show as the fleet says.
    static func repair(_ arguments: ParsedArguments) throws(GrantError) -> Int32 {
        try arguments.refuse(["recorded", "confirm", "prune"])
        var grants = try read(arguments)
        if arguments.operands.isEmpty, !arguments.has("all") {
            grants.removeAll { $0.hosts.allSatisfy(\.isSound) }
        }
        return try show(grants, asObject: !arguments.operands.isEmpty, arguments)
    }

    static func list(_ arguments: ParsedArguments) throws(GrantError) -> Int32 {
        try show(try read(arguments), asObject: false, arguments)
    }

    /// Returns the selected grants, or all, each with the hosts that it is for.
    private static func read(_ arguments: ParsedArguments) throws(GrantError) -> [(grant: FleetGrant, hosts: [HostStatus])] {
        let view = try arguments.view()
        let fleet = try arguments.openFleet()
        let all = try fleet.grants().grants
        let grants =
            try arguments.operands.isEmpty
            ? all.filter { view == nil || $0.view == view } : FleetGrants.select(arguments.operands, view, all)
        let hosts = try fleet.hosts().hosts
        return grants.map { grant in (grant, hosts.filter { $0.isConcerned(by: grant) }.map { HostStatus($0, grant) }) }
    }

    /// `asObject`: JSON is one object and no array.
    private static func show(
        _ grants: [(grant: FleetGrant, hosts: [HostStatus])], asObject: Bool, _ arguments: ParsedArguments
    ) throws(GrantError) -> Int32 {
        if arguments.wantsJSON {
            let documents = grants.map { grant, hosts in
                JSON.object(FleetOutput.json(grant) + [("by", .string(grant.by)), ("hosts", .array(hosts.map { .object($0.json) }))])
            }
            try Terminal.print(asObject ? documents[0].text : JSON.array(documents).text)
            return 0
        }
        for (grant, hosts) in grants { try show(grant, hosts) }
        return 0
    }

    /// A host's status for a grant.
    private struct HostStatus {
        let host: String
        let isLive: Bool
        /// Whether it has applied the fleet's state of the grant.
        let isCurrent: Bool
        let problem: String?

        init(_ host: FleetHost, _ grant: FleetGrant) {
            (self.host, isLive, problem) = (host.id, host.lease != nil, host.problems[grant.id.description])
            isCurrent = host.lease != nil && host.applied >= grant.revision
        }

        /// Whether the host shows the grant as the fleet says.
        var isSound: Bool { isCurrent && problem == nil }

        var json: [(String, JSON)] {
            [
                ("host", .string(host)), ("state", .string(isLive ? "live" : "gone")), ("current", .bool(isCurrent)),
                ("reason", problem.map { .string($0) } ?? .null),
            ]
        }

        var words: String {
            if let problem { return Terminal.visible(problem) }
            return isCurrent
                ? "as the fleet says" : isLive ? "it has not confirmed yet" : "it is not heard of, and shows nothing of the fleet"
        }
    }

    private static func show(_ grant: FleetGrant, _ hosts: [HostStatus]) throws(GrantError) {
        let now = Instant(nanoseconds: Clock.realtime)
        var rows = [
            ("name", Terminal.visible(grant.name.bytes)), ("view", Terminal.visible(grant.view.description)),
            ("id", grant.id.description), ("path", Terminal.visible(grant.place)), ("access", grant.access.rawValue),
            ("state", grant.state(at: now).rawValue), ("for", grant.hosts.description), ("created", Timestamp.local(grant.created)),
            ("expires", grant.expires.map { Timestamp.local($0) } ?? "never"),
            ("changed", grant.by.isEmpty ? "-" : Terminal.visible("by \(grant.by)")),
        ]
        for list in grant.rules.lists { rows += list.patterns.map { (list.name, Terminal.visible($0.description)) } }
        try Table.print(rows: rows)
        var table = Table(header: ["HOST", "STATE", "THERE"])
        for host in hosts {
            table.add(
                [host.host, host.isLive ? "live" : "not heard of", host.words], host.isSound ? nil : .attention)
        }
        if !hosts.isEmpty { try Terminal.print(table.text(colour: Terminal.hasColour(Terminal.standardOutput))) }
    }
}
