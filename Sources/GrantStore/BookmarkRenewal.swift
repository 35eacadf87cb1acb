import GrantModel

/// An update of a grant's bookmark.
public struct BookmarkRenewal: Sendable {
    public let grant: GrantID
    /// The identity in the old bookmark, by which the directory was found.
    public let seen: FileIdentity
    public let bookmark: Bookmark
    /// For a document that another file has replaced: how, for the log.
    public let detail: String?

    public init(grant: GrantID, seen: FileIdentity, bookmark: Bookmark, detail: String? = nil) {
        (self.grant, self.seen, self.bookmark, self.detail) = (grant, seen, bookmark, detail)
    }
}
