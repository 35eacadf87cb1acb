/// What the holder of a grant may do below it.
public enum Access: String, Sendable, CaseIterable {
    case readWrite = "read-write"
    case readOnly = "read-only"
}

/// What claims exclude.
public enum Coordination: String, Sendable, CaseIterable {
    /// Claims exclude other claims, and nothing else.
    case advisory
    /// Operations through a mount that conflict with a claim wait until it ends.
    case mandatory
}

/// The state of a grant in the store. `GrantState` adds what only a look at the disk can tell.
public enum RecordedState: String, Sendable, CaseIterable {
    case active
    case revoked
    case expired
}

/// The state of a grant as commands show it.
public enum GrantState: String, Sendable, CaseIterable {
    case active
    case revoked
    case expired
    /// Active on record, but its directory cannot be found now.
    case unavailable
}

/// The result of resolving a bookmark.
public enum BookmarkFinding: String, Sendable, CaseIterable {
    /// At its recorded path.
    case ok
    /// The same directory under another path.
    case moved
    /// Another directory is at the recorded path, and the bookmarked one was not found. Never entered.
    case replaced
    /// Not found, though its filesystem is mounted.
    case missing
    /// Its filesystem is not mounted.
    case unavailable
    /// More than one candidate.
    case ambiguous
    /// Found, but the filesystem has no persistent file handles: only inode and birth time were compared.
    case weak

    /// Whether the directory may be entered.
    public var isUsable: Bool {
        switch self {
        case .ok, .moved, .weak: true
        case .replaced, .missing, .unavailable, .ambiguous: false
        }
    }
}

/// A bookmark given to one view under one name, as the store keeps it.
public struct Grant: Sendable {
    public let id: GrantID
    public var view: ViewName
    public var name: GrantName
    public var bookmark: Bookmark
    public var access: Access
    public var state: RecordedState
    public var created: Instant
    public var expires: Instant?
    /// The number of times that the grant was made active. A scope belongs to one activation, so
    /// descriptors and paths from before a revocation stay refused after `restore`, however soon
    /// that follows.
    public var activation: Int64
    public var coordination: Coordination
    /// For a grant that the fleet gave to this host: the fleet's own activation number, as last
    /// heard of here. It is nil for a local grant.
    public var fleetActivation: Int64?
    /// Names below the directory that are hidden, protected, or alone visible.
    public var rules: GrantRules
    /// Whether a person has yet to allow it: mounts show its name, and everything below is refused.
    package var isOffered = false

    public init(
        id: GrantID, view: ViewName, name: GrantName, bookmark: Bookmark, access: Access, state: RecordedState = .active,
        created: Instant, expires: Instant? = nil, activation: Int64 = 1, coordination: Coordination = .advisory,
        fleetActivation: Int64? = nil, rules: GrantRules = .none
    ) {
        self.id = id
        self.view = view
        self.name = name
        self.bookmark = bookmark
        self.access = access
        self.state = state
        self.created = created
        self.expires = expires
        self.activation = activation
        self.coordination = coordination
        self.fleetActivation = fleetActivation
        self.rules = rules
    }

    /// The recorded state, or `expired` if the expiry has passed since it was recorded.
    public func state(at now: Instant) -> RecordedState {
        if state == .active, let expires, expires <= now { return .expired }
        return state
    }
}
