import GrantModel

/// A grant of the fleet, as it is in etcd.
public struct FleetGrant: Sendable, Equatable {
    /// The formats. Programs that know the first alone must not take a directory of a filesystem for a path, nor give a grant without
    /// its rules.
    private enum Format: Int64 {
        case path = 1
        case filesystem
        case pathWithRules
        case filesystemWithRules

        var hasFilesystem: Bool { self == .filesystem || self == .filesystemWithRules }
        var hasRules: Bool { self == .pathWithRules || self == .filesystemWithRules }
    }

    private var format: Format {
        if rules.isEmpty { return filesystem == nil ? .path : .filesystem }
        return filesystem == nil ? .pathWithRules : .filesystemWithRules
    }

    public let id: GrantID
    public var view: ViewName
    public var name: GrantName
    /// The path of the directory on every host. With `filesystem`, it begins at the root of that
    /// filesystem.
    public let path: String
    /// The filesystem on which it lies, wherever that is mounted.
    public let filesystem: FilesystemName?
    /// The directory's identity, which the filesystem reports to every host, or nil if it was
    /// unknown.
    public let identity: FileIdentity?
    public var access: Access
    public var state: RecordedState
    public var expires: Instant?
    public var coordination: Coordination
    public var rules: GrantRules
    /// Counts its activations, as `Grant.activation` does.
    public var activation: Int64
    public let hosts: HostSelector
    public let created: Instant
    /// The user that changed it last, for people, or empty if the program named none.
    public var by = ""
    /// The revision of its last change, or 0 before it is written.
    public var revision: Int64 = 0

    public init(
        id: GrantID = .random(), view: ViewName, name: GrantName, path: String, filesystem: FilesystemName? = nil,
        identity: FileIdentity? = nil, access: Access, expires: Instant? = nil, coordination: Coordination = .advisory,
        rules: GrantRules = .none, hosts: HostSelector, created: Instant
    ) {
        (self.filesystem, self.identity) = (filesystem, identity)
        (self.id, self.view, self.name, self.path, self.access) = (id, view, name, path, access)
        (self.state, self.expires, self.coordination, self.activation) = (.active, expires, coordination, 1)
        (self.rules, self.hosts, self.created) = (rules, hosts, created)
    }

    /// The directory on its filesystem, or nil for a directory that is named by its path on the
    /// hosts.
    public var shared: SharedDirectory? { filesystem.map { SharedDirectory(filesystem: $0, path: path, identity: identity) } }

    /// Whether the other grant names the same directory in the same way. What the directory is may be known of one alone.
    public func isOfSameDirectory(as other: FleetGrant) -> Bool {
        guard let identity, let others = other.identity else { return path == other.path && filesystem == other.filesystem }
        return path == other.path && filesystem == other.filesystem && identity.agrees(with: others)
    }

    /// The directory's location, for people.
    public var place: String { shared?.description ?? path }

    public func state(at now: Instant) -> RecordedState {
        if state == .active, let expires, expires <= now { return .expired }
        return state
    }

    var json: JSONValue {
        var members: [String: JSONValue] = [
            "format": .integer(format.rawValue), "id": .string(id.description),
            "view": .string(view.description),
            "name": .string(name.description), "path": .string(path), "access": .string(access.rawValue), "state": .string(state.rawValue),
            "expires": expires.map { .integer($0.nanoseconds) } ?? .null, "coordination": .string(coordination.rawValue),
            "activation": .integer(activation), "hosts": .string(hosts.description), "created": .integer(created.nanoseconds),
            "by": .string(by),
        ]
        if !rules.isEmpty { members["rules"] = rules.fleetJSON }
        if let filesystem { members["filesystem"] = .string(filesystem.description) }
        if let identity {
            members["inode"] = .integer(Int64(bitPattern: identity.inode))
            members["generation"] = identity.generation.map { .integer(Int64($0)) } ?? .null
            members["birth"] = identity.birthTime.map { .integer($0.nanoseconds) } ?? .null
        }
        return .object(members)
    }

    /// Decodes an entry of etcd, which has to match its key. `.storeNewer`, `.storeDamaged` with the reason as the cause.
    init(_ entry: EtcdEntry) throws(GrantError) {
        let flaw = { (why: String) in GrantError(.storeDamaged, "\(entry.key) is not a grant", cause: why) }
        guard let json = try? JSONValue(text: entry.value), let version = json["format"]?.integer else { throw flaw("it makes no sense") }
        guard let format = Format(rawValue: version) else {
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
        filesystem = json["filesystem"]?.string.flatMap { FilesystemName($0) }
        guard (filesystem != nil) == format.hasFilesystem else { throw flaw("its filesystem makes no sense") }
        guard let rules = format.hasRules ? GrantRules(fleetJSON: json["rules"]) : json["rules"] == nil ? GrantRules.none : nil else {
            throw flaw("its rules make no sense")
        }
        self.rules = rules
        identity = try FleetGrant.identity(json, flaw)
        switch json["expires"] {
        case .integer(let time)?: expires = Instant(nanoseconds: time)
        case .null?: expires = nil
        default: throw flaw("its expiry makes no sense")
        }
        (self.state, self.coordination, self.activation, self.hosts) = (state, coordination, activation, hosts)
        self.created = Instant(nanoseconds: created)
        by = String((json["by"]?.string ?? "").prefix(200))
        revision = entry.modified
        guard FleetKeys.grant(self) == entry.key else { throw flaw("it has the key of another grant") }
    }

    /// nil where none was recorded. What makes no sense must not be taken for that, because then any directory would do.
    private static func identity(_ json: JSONValue, _ flaw: (String) -> GrantError) throws(GrantError) -> FileIdentity? {
        switch (json["inode"], json["generation"], json["birth"]) {
        case (nil, nil, nil): return nil
        case (let inode?, let generation?, let birth?):
            guard let inode = inode.integer, generation == .null || generation.integer.flatMap({ UInt32(exactly: $0) }) != nil,
                birth == .null || birth.integer != nil
            else { throw flaw("its identity makes no sense") }
            return FileIdentity(
                inode: UInt64(bitPattern: inode), generation: generation.integer.flatMap { UInt32(exactly: $0) },
                birthTime: birth.integer.map { Instant(nanoseconds: $0) })
        default: throw flaw("its identity makes no sense")
        }
    }

    /// Whether the path is absolute and canonical.
    public static func isPath(_ path: String) -> Bool {
        guard path.hasPrefix("/"), path.utf8.count < 4096, !path.utf8.contains(0) else { return false }
        return path == "/"
            || path.dropFirst().split(separator: "/", omittingEmptySubsequences: false).allSatisfy { !["", ".", ".."].contains($0) }
    }
}
