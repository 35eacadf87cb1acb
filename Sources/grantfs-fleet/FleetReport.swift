import GrantCommandLine
import GrantCommandSupport
import GrantFleet
import GrantModel
import GrantSystem

/// `fleet hosts` and `fleet status`
enum FleetReport {
    /// Of one host, what it cannot do is shown of so many grants.
    private static let problems = 100

    static func hosts(_ arguments: ParsedArguments) throws(GrantError) -> Int32 {
        let fleet = try arguments.openFleet()
        let (hosts, _) = try fleet.hosts()
        let wanted = try fleet.grants().grants.map { ($0, $0.revision) }
        let left = fleet.timeLeft(of: hosts)
        let rows = hosts.map { host -> (FleetHost, Int64?, Int64) in
            let last = wanted.filter { host.isConcerned(by: $0.0) }.map(\.1).max() ?? 0
            return (host, left[host.id], last)
        }
        if arguments.wantsJSON {
            try Terminal.print(JSON.array(rows.map { .object(json($0, left: $1, last: $2)) }).text)
            return 0
        }
        if rows.isEmpty { Terminal.note("the fleet has no hosts (grantfs fleet invite HOST)") }
        var table = Table(header: ["HOST", "STATE", "UP TO DATE", "LEASE", "CLOCK", "VERSION", "LABELS"])
        for (host, left, last) in rows {
            let isLive = host.lease != nil
            table.add(
                [
                    VisibleText.name(host.id), host.registered == nil ? "taken out" : isLive ? "live" : "not heard of",
                    isLive ? (host.applied >= last ? "yes" : "no") : "-",
                    left.map { "\($0) s" } ?? "-", isLive ? "\(host.clock) s" : "-",
                    host.version.isEmpty ? "-" : VisibleText.of(VisibleText.cut(host.version, to: 40)),
                    VisibleText.name(host.labels.description),
                ], isLive && host.registered != nil ? nil : .attention)
        }
        if !rows.isEmpty { try Terminal.print(table.text(colour: Terminal.hasColour(Terminal.standardOutput))) }
        for (host, _, _) in rows {
            // A host may say what it likes, and of grants that are none.
            let name = VisibleText.cut(host.id, to: 100)
            for (id, problem) in host.problems.sorted(by: { $0.key < $1.key }).prefix(problems) {
                Terminal.note("host “\(name)”, grant \(VisibleText.cut(id, to: 12)): \(VisibleText.cut(problem, to: 300))")
            }
            if host.problems.count > problems { Terminal.note("host “\(name)”: \(host.problems.count - problems) more") }
        }
        return 0
    }

    private static func json(_ host: FleetHost, left: Int64?, last: Int64) -> [(String, JSON)] {
        let until = left.map { Instant(nanoseconds: Clock.realtime).adding(seconds: Double($0)) }
        return [
            ("host", .string(host.id)),
            ("labels", .object(host.labels.values.sorted { $0.key < $1.key }.map { ($0.key, .string($0.value)) })),
            ("state", .string(host.lease == nil ? "gone" : "live")), ("registered", .bool(host.registered != nil)),
            ("until", JSON.time(until)),
            ("revision", .integer(host.applied)), ("wanted", .integer(last)), ("clock", .integer(host.clock)),
            ("version", .string(host.version)),
            ("problems", .object(host.problems.sorted { $0.key < $1.key }.map { ($0.key, .string($0.value)) })),
        ]
    }

    static func status(_ arguments: ParsedArguments) throws(GrantError) -> Int32 {
        if let host = try HostFleetStatus(arguments) { return try host.show(arguments) }
        let client = try EtcdClient(try arguments.administratorCredentials().settings)
        let members = try client.members()
        if !arguments.wantsJSON { try show(members) }
        report(members)
        let fleet = try FleetStore(client)
        let (hosts, revision) = try fleet.hosts()
        let (grants, invalidEntries) = try fleet.grants()
        let now = Instant(nanoseconds: Clock.realtime)
        let (live, active) = (hosts.count { $0.lease != nil }, grants.count { $0.state(at: now) == .active })
        for flaw in invalidEntries { Terminal.report(flaw) }
        if arguments.wantsJSON {
            let document = JSON.object([
                ("members", .array(members.map { json($0) })),
                ("revision", .integer(revision)), ("lease", .integer(try fleet.format().lease)),
                ("hosts", .object([("live", .integer(Int64(live))), ("gone", .integer(Int64(hosts.count - live)))])),
                ("grants", .object([("active", .integer(Int64(active))), ("others", .integer(Int64(grants.count - active)))])),
            ])
            try Terminal.print(document.text)
        } else {
            try Terminal.print("\(live) of \(hosts.count) hosts live, \(active) of \(grants.count) grants active, revision \(revision)")
        }
        return members.allSatisfy(\.isSound) ? 0 : 1
    }

    static func show(_ members: [EtcdClient.Member]) throws(GrantError) {
        var table = Table(header: ["ENDPOINT", "STATE", "VERSION", "SIZE"])
        for member in members {
            table.add(
                [
                    member.endpoint, state(of: member), member.failure == nil ? member.version : "-",
                    member.failure == nil ? "\(member.bytes / 1024) KiB" : "-",
                ], member.isSound ? nil : .attention)
        }
        try Terminal.print(table.text(colour: Terminal.hasColour(Terminal.standardOutput)))
    }

    /// Says why members are not sound.
    static func report(_ members: [EtcdClient.Member]) {
        if members.contains(where: { !$0.alarms.isEmpty }) {
            Terminal.note(
                "because of the alarm etcd refuses changes, and hosts that cannot confirm close the fleet's grants. "
                    + "The next command that changes something disarms it (etcdctl alarm disarm does, too)")
        }
        for member in members { if let failure = member.failure { Terminal.report(failure.error("\(member.endpoint) is not heard")) } }
    }

    static func json(_ member: EtcdClient.Member) -> JSON {
        .object([
            ("endpoint", .string(member.endpoint)), ("answers", .bool(member.failure == nil)), ("leads", .bool(member.isLeader)),
            ("full", .bool(member.isFull)), ("alarms", .array(member.alarms.map { .string($0) })), ("version", .string(member.version)),
            ("bytes", .integer(member.bytes)),
        ])
    }

    private static func state(of member: EtcdClient.Member) -> String {
        if member.failure != nil { return "no answer" }
        if !member.alarms.isEmpty { return "alarm " + member.alarms.joined(separator: ", ") }
        return member.isLeader ? "leads" : "follows"
    }
}
