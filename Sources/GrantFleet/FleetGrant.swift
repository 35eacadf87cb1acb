import GrantModel

/// A grant of the fleet, as it is in etcd.
public struct FleetGrant: Sendable, Equatable {
    static let version: Int64 = 1

    public let id: GrantID
    public var view: ViewName
    public var name: GrantName
    /// The path of the directory, on every host.
    public let path: String
    public var access: Access
    public var state: RecordedState
    public var expires: Instant?
    public var coordination: Coordination
    /// Counts its activations, as `Grant.activation` does.
    public var activation: Int64
    public let hosts: HostSelector
    public let created: Instant
    /// Who changed it last, for people; empty if the program did not say.
    public var by = ""
    /// The revision of its last change; 0 before it is written.
    public var revision: Int64 = 0

    public init(
        id: GrantID = .random(), view: ViewName, name: GrantName, path: String, access: Access, expires: Instant? = nil,
        coordination: Coordination = .advisory, hosts: HostSelector, created: Instant
    ) {
        (self.id, self.view, self.name, self.path, self.access) = (id, view, name, path, access)
        (self.state, self.expires, self.coordination, self.activation) = (.active, expires, coordination, 1)
        (self.hosts, self.created) = (hosts, created)
    }

    public func state(at now: Instant) -> RecordedState {
        if state == .active, let expires, expires <= now { return .expired }
        return state
    }

    var json: JSONValue {
        .object([
            "format": .integer(FleetGrant.version), "id": .string(id.description), "view": .string(view.description),
            "name": .string(name.description), "path": .string(path), "access": .string(access.rawValue), "state": .string(state.rawValue),
            "expires": expires.map { .integer($0.nanoseconds) } ?? .null, "coordination": .string(coordination.rawValue),
            "activation": .integer(activation), "hosts": .string(hosts.description), "created": .integer(created.nanoseconds),
            "by": .string(by),
        ])
    }

    /// Decodes an entry of etcd, which has to match its key. `.storeNewer`, `.storeDamaged` with the reason as the cause.
    init(_ entry: EtcdEntry) throws(GrantError) {
        let flaw = { (why: String) in GrantError(.storeDamaged, "\(entry.key) is no grant", cause: why) }
        guard let json = try? JSONValue(text: entry.value), let version = json["format"]?.integer else { throw flaw("it makes no sense") }
        guard version == FleetGrant.version else {
            throw GrantError(
                .storeNewer, "\(entry.key) cannot be read", cause: "it is of version \(version), which this program does not know")
        }
        guard let id = json["id"]?.string.flatMap({ GrantID($0) }), let view = json["view"]?.string.flatMap({ try? ViewName($0) }),
            let name = json["name"]?.string.flatMap({ try? GrantName(chosen: Array($0.utf8)) }),
            let access = json["access"]?.string.flatMap({ Access(rawValue: $0) }),
            let state = json["state"]?.string.flatMap({ RecordedState(rawValue: $0) }),
            let coordination = json["coordination"]?.string.flatMap({ Coordination(rawValue: $0) }),
            let activation = json["activation"]?.integer, activation > 0, let created = json["created"]?.integer,
            let hosts = json["hosts"]?.string.flatMap({ try? HostSelector($0) })
        else { throw flaw("a member is missing or makes no sense") }
        guard let path = json["path"]?.string, FleetGrant.isPath(path) else { throw flaw("its path is none") }
        (self.id, self.view, self.name, self.path, self.access) = (id, view, name, path, access)
        switch json["expires"] {
        case .integer(let time)?: expires = Instant(nanoseconds: time)
        case .null?: expires = nil
        default: throw flaw("its expiry makes no sense")
        }
        (self.state, self.coordination, self.activation, self.hosts) = (state, coordination, activation, hosts)
        self.created = Instant(nanoseconds: created)
        by = String((json["by"]?.string ?? "").prefix(200))
        revision = entry.modified
        guard FleetKeys.grant(self) == entry.key else { throw flaw("it stands under another's key") }
    }

    /// Whether the path is absolute and canonical.
    public static func isPath(_ path: String) -> Bool {
        guard path.hasPrefix("/"), path.utf8.count < 4096, !path.utf8.contains(0) else { return false }
        return path == "/"
            || path.dropFirst().split(separator: "/", omittingEmptySubsequences: false).allSatisfy { !["", ".", ".."].contains($0) }
    }
}
