import GrantModel

/// An update of a grant's bookmark.
public struct BookmarkRenewal: Sendable {
    public let grant: GrantID
    /// The identity in the old bookmark, by which the directory was found.
    public let seen: FileIdentity
    public let bookmark: Bookmark
    /// How another file has replaced a document, for the log. It is nil for other renewals.
    public let detail: String?

    public init(grant: GrantID, seen: FileIdentity, bookmark: Bookmark, detail: String? = nil) {
        (self.grant, self.seen, self.bookmark, self.detail) = (grant, seen, bookmark, detail)
    }
}
