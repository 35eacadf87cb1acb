import Bookmarks
import GrantModel

/// A grant with what a look at the disk adds to the record.
public struct GrantDescription: Sendable {
    public let grant: Grant
    public let state: GrantState
    public let finding: BookmarkFinding
    /// Where the directory is now; where it was last seen when it is not found.
    public let path: [UInt8]
    /// What the finding alone does not say; for people.
    public let reason: String?

    /// Whether the bookmark's own path no longer leads to the directory.
    public var isStale: Bool {
        switch finding {
        case .moved, .replaced, .missing: true
        case .ok, .weak, .unavailable, .ambiguous: false
        }
    }

    public init(_ grant: Grant, finding: BookmarkFinding, path: [UInt8]?, reason: String? = nil, now: Instant) {
        self.grant = grant
        self.finding = finding
        self.path = path ?? grant.bookmark.path
        self.reason = reason
        state =
            switch grant.state(at: now) {
            case .active: finding.isUsable ? .active : .unavailable
            case .revoked: .revoked
            case .expired: .expired
            }
    }
}
