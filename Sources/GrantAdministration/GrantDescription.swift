import GrantBookmarks
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
    /// Where another directory lies that carries the grant's tag, if the grant's own is lost and there is exactly one.
    public let copy: [UInt8]?
    /// The filesystem does not answer, so nothing is known.
    public let isSilent: Bool

    /// Whether the bookmark's own path no longer leads to the directory.
    public var isStale: Bool {
        switch finding {
        case .moved, .replaced, .missing: true
        case .ok, .weak, .unavailable, .ambiguous: false
        }
    }

    init(_ grant: Grant, _ answer: Answer, now: Instant) {
        self.grant = grant
        if case .found(let found) = answer {
            (finding, copy, isSilent) = (found.finding, found.copy, false)
            path = found.path ?? grant.bookmark.path
            reason =
                if found.isInTrash {
                    "it lies in a Trash; it is back when it is taken out of there"
                } else {
                    found.copy.map {
                        "a directory with its tag, a copy of it perhaps, lies at \(String(decoding: $0, as: UTF8.self)); "
                            + "it is entered after grantfs confirm"
                    }
                }
        } else {
            (finding, copy, isSilent) = (.unavailable, nil, true)
            path = grant.bookmark.path
            reason = "its filesystem does not answer"
        }
        state =
            switch grant.state(at: now) {
            case .active: finding.isUsable ? .active : .unavailable
            case .revoked: .revoked
            case .expired: .expired
            }
    }
}
