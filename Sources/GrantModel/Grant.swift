/// What the holder of a grant may do below it.
public enum Access: String, Sendable, CaseIterable {
    case readWrite = "read-write"
    case readOnly = "read-only"
}

/// What claims bind.
public enum Coordination: String, Sendable, CaseIterable {
    /// Claims meet claims, and nothing else.
    case advisory
    /// Operations through a mount that conflict with a claim wait until it ends.
    case mandatory
}

/// The state a grant is kept in. `GrantState` adds what only a look at the disk can tell.
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

/// What resolving a bookmark found.
public enum BookmarkFinding: String, Sendable, CaseIterable {
    /// Where it was.
    case ok
    /// The same directory under another path.
    case moved
    /// Another directory stands at the old path, and the bookmarked one is nowhere. Never entered.
    case replaced
    /// Nowhere, though its filesystem is there.
    case missing
    /// Its filesystem is not mounted.
    case unavailable
    /// More than one candidate.
    case ambiguous
    /// Found, but the filesystem has no lasting file handles: inode and birth time agree.
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
    /// Counts the times the grant was made active. A scope belongs to one activation, so that what was reached before
    /// a revocation stays refused after `restore`, however quickly the one follows the other.
    public var activation: Int64
    public var coordination: Coordination
    /// Of a grant that the fleet gave to this host: which of its activations there is the last that was heard of here. nil: it was granted here.
    public var fleetActivation: Int64?

    public init(
        id: GrantID, view: ViewName, name: GrantName, bookmark: Bookmark, access: Access, state: RecordedState = .active,
        created: Instant, expires: Instant? = nil, activation: Int64 = 1, coordination: Coordination = .advisory,
        fleetActivation: Int64? = nil
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
    }

    /// The recorded state, with an expiry that has passed since it was recorded.
    public func state(at now: Instant) -> RecordedState {
        if state == .active, let expires, expires <= now { return .expired }
        return state
    }
}
