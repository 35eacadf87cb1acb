import GrantModel
import GrantStore
import GrantSystem

/// An entry of the log in etcd: a change of a grant of the fleet, or of a host.
public struct FleetLogEntry: Sendable {
    public let time: Instant
    /// `granted`, `revoked`, `restored`, `changed`, `removed`, `invited`, `taken out`.
    public let event: String
    /// The user of etcd.
    public let user: String
    public let machine: String
    public let uid: Int64
    public let loginUID: Int64?
    public let program: String
    /// For a grant: its id, view, name, and hosts.
    public var grant: (id: String, view: String, name: String, hosts: String)?
    /// The host that was invited or taken out.
    public var host: String?

    /// Decodes an entry: one result for each grant that it names, or none if it is invalid.
    static func all(_ entry: EtcdEntry) -> [FleetLogEntry] {
        guard let json = try? JSONValue(text: entry.value), let time = json["time"]?.integer, let event = json["event"]?.string else {
            return []
        }
        let common = FleetLogEntry(
            time: Instant(nanoseconds: time), event: event, user: json["user"]?.string ?? "", machine: json["machine"]?.string ?? "",
            uid: json["uid"]?.integer ?? 0, loginUID: json["login"]?.integer, program: json["program"]?.string ?? "")
        if let host = json["host"]?.string {
            var one = common
            one.host = host
            return [one]
        }
        return (json["grants"]?.items ?? []).map { grant in
            var one = common
            one.grant = (
                grant["id"]?.string ?? "", grant["view"]?.string ?? "", grant["name"]?.string ?? "", grant["hosts"]?.string ?? ""
            )
            return one
        }
    }
}

/// An event in a fleet.
public enum FleetEvent: Sendable {
    case done(FleetLogEntry)
    /// An agent acts for the host, under a lease.
    case live(host: String)
    /// The host's lease has ended, and with it all that it served of the fleet.
    case gone(host: String)
    /// The host cannot apply a grant, for this reason. Without a reason it can again.
    case problem(host: String, grant: String, String?)
    /// etcd has compacted the requested revisions.
    case missed
}

extension FleetStore {
    static var machine: String { File.line(of: "/proc/sys/kernel/hostname") ?? "" }

    /// The actor of changes here, for the hosts' own logs.
    var changer: String {
        let login = actor.loginUID.map { " (login \($0))" } ?? ""
        return "\(client.settings.user ?? "") on \(FleetStore.machine), uid \(actor.uid)\(login)"
    }

    /// Returns the operations that append to the log and remove old entries.
    func logging(_ event: String, _ subject: (String, JSONValue)) -> [EtcdOperation] {
        let now = Instant(nanoseconds: Clock.realtime)
        let entry = JSONValue.object([
            "time": .integer(now.nanoseconds), "event": .string(event), "user": .string(client.settings.user ?? ""),
            "machine": .string(FleetStore.machine), "uid": .integer(Int64(actor.uid)),
            "login": actor.loginUID.map { .integer(Int64($0)) } ?? .null, "program": .string(actor.program), subject.0: subject.1,
        ])
        return [
            .put(FleetKeys.log(at: now), entry.text),
            .deleteRange(FleetKeys.log, FleetKeys.log(at: now.adding(seconds: -FleetStore.logSeconds))),
        ]
    }

    /// Returns the log since a time, or all of it, in order, and its revision.
    public func log(since: Instant? = nil) throws(GrantError) -> (entries: [FleetLogEntry], revision: Int64) {
        let found = try Self.mapping("the fleet's log cannot be read") { () throws(EtcdFailure) in
            try client.list(FleetKeys.log, from: since.map { FleetKeys.log(at: $0) })
        }
        return (found.entries.flatMap { FleetLogEntry.all($0) }, found.revision)
    }

    /// Reports entries of the log and events of hosts after a revision, without an end. It waits for a server that does not answer.
    public func follow(after revision: Int64, each: @escaping (FleetEvent) -> Void) throws(GrantError) -> Never {
        var next = revision + 1
        var problems = Dictionary(try hosts().hosts.map { ($0.id, $0.problems) }, uniquingKeysWith: { first, _ in first })
        while true {
            do throws(EtcdFailure) {
                // Reconnects each minute: nothing else would detect a connection that died silently.
                try client.watch(FleetKeys.root, from: next, milliseconds: 60_000) { events in
                    next = events.revision + 1
                    for entry in events.puts { FleetStore.events(of: entry, &problems).forEach(each) }
                    for key in events.deletes { if let id = FleetHost.id(in: key), key == FleetKeys.agent(id) { each(.gone(host: id)) } }
                    return true
                }
            } catch {
                switch error {
                case .compacted(let oldest):
                    next = oldest
                    each(.missed)
                case .unreachable, .unanswered: ThreadSleep.milliseconds(500)
                default: throw error.error("the fleet cannot be watched")
                }
            }
        }
    }

    private static func events(of entry: EtcdEntry, _ known: inout [String: [String: String]]) -> [FleetEvent] {
        if entry.key.hasPrefix(FleetKeys.log) { return FleetLogEntry.all(entry).map { .done($0) } }
        guard let id = FleetHost.id(in: entry.key) else { return [] }
        if entry.key == FleetKeys.agent(id) { return [.live(host: id)] }
        var host = FleetHost(id: id)
        guard entry.key == FleetKeys.state(id) else { return [] }
        host.take(entry)
        let before = known.updateValue(host.problems, forKey: id) ?? [:]
        return Set(before.keys).union(host.problems.keys).sorted().compactMap { grant in
            before[grant] == host.problems[grant] ? nil : .problem(host: id, grant: grant, host.problems[grant])
        }
    }
}
