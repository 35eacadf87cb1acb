import GrantBookmarks
import GrantModel

/// A grant with the data that a look at the disk adds to its record.
public struct GrantDescription: Sendable {
    public let grant: Grant
    public let state: GrantState
    public let finding: BookmarkFinding
    /// The directory's present path, or its last known path if it was not found.
    public let path: [UInt8]
    /// Details of the finding, for people.
    public let reason: String?
    /// The path of another directory that carries the grant's tag, if the grant's own is lost and there is exactly one.
    public let copy: [UInt8]?
    /// Whether the filesystem does not answer, so that nothing is known.
    public let isUnresponsive: Bool

    /// Whether a person has yet to allow it. Its state is then `active`.
    package var isOffered: Bool { grant.isOffered && state == .active }

    /// The state for people.
    package var shownState: String { isOffered ? "offered" : state.rawValue }

    /// Whether the bookmark's recorded path no longer leads to the directory.
    public var isStale: Bool {
        switch finding {
        case .moved, .replaced, .missing: true
        case .ok, .weak, .unavailable, .ambiguous: false
        }
    }

    /// `isFenced`: the lease of the fleet's grants on this host has ended, so every mount refuses this one.
    init(_ grant: Grant, _ answer: ProbeAnswer, now: Instant, isFenced: Bool) {
        self.grant = grant
        if case .found(let found) = answer {
            (finding, copy, isUnresponsive) = (found.finding, found.copy, false)
            path = found.path ?? grant.bookmark.path
            reason =
                if isFenced, grant.state(at: now) == .active {
                    "the lease of the fleet's grants has ended on this host. "
                        + "It returns when the agent reaches etcd (grantfs fleet status)"
                } else if found.isInTrash {
                    "it lies in a Trash. It returns when it is moved out of there"
                } else {
                    found.copy.map {
                        "a directory with its tag, a copy of it perhaps, lies at \(String(decoding: $0, as: UTF8.self)). "
                            + "grantfs repair --confirm accepts it"
                    }
                }
        } else {
            (finding, copy, isUnresponsive) = (.unavailable, nil, true)
            path = grant.bookmark.path
            reason = "its filesystem does not answer"
        }
        state =
            switch grant.state(at: now) {
            case .active: finding.isUsable && !isFenced ? .active : .unavailable
            case .revoked: .revoked
            case .expired: .expired
            }
    }
}
