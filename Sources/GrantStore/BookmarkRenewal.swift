import GrantModel

/// Where a bookmark leads now.
public struct BookmarkRenewal: Sendable {
    public let grant: GrantID
    /// The identity of what it was looked for by.
    public let seen: FileIdentity
    public let bookmark: Bookmark
    /// Of a document that another file has taken the place of: how, for the log.
    public let detail: String?

    public init(grant: GrantID, seen: FileIdentity, bookmark: Bookmark, detail: String? = nil) {
        (self.grant, self.seen, self.bookmark, self.detail) = (grant, seen, bookmark, detail)
    }
}
