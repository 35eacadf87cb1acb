import Foundation
import GrantAdministration
import GrantModel

/// The data of a bookmark as a value, to be stored, sent or compared. It does what `URL.bookmarkData` and `URL(resolvingBookmarkData:)`
/// do, with typed errors.
public struct DirectoryBookmark: Sendable, Hashable, Codable {
    /// The data of `URL.bookmarkData`. It is only usable together with the store that sealed it.
    public let data: Data

    /// The result of resolving a bookmark.
    public struct Resolution: Sendable {
        /// The URL in a mount of the grant's view, or the item's own if no mount shows it.
        public let url: URL
        /// Whether the item was moved. A new bookmark made from `url` is current again.
        public let isStale: Bool
        /// The grant that leads to the item, or nil for a bookmark of an item alone.
        public let grant: Grant?
        /// Whether a revocation affects users of `url`.
        public let isInMount: Bool
    }

    /// Takes stored data without resolving it.
    ///
    /// - Throws: `.invalidBookmark` if the data is invalid.
    public init(data: Data) throws(GrantError) {
        _ = try BookmarkData.decoded(Array(data))
        self.data = data
    }

    /// Bookmarks the item at the URL.
    ///
    /// - Parameters:
    ///   - url: A file or directory, in a mount or on the host.
    ///   - isScoped: Whether the bookmark leads through the active grant. Otherwise it has no
    ///     grant.
    /// - Throws: `.notFound`, `.permission` (the item's own, or no active grant), `.usage`, and the
    ///   store's errors.
    public init(of url: URL, isScoped: Bool = true) throws(GrantError) {
        data = Data(try BookmarkMaker.data(of: url, scope: isScoped ? .required : .none, in: .current))
    }

    /// Resolves the bookmark.
    ///
    /// - Throws: `.permission` for a withdrawn grant, `.notFound`, `.invalidBookmark`,
    ///   `.ambiguous`, and the store's errors.
    public func resolve() throws(GrantError) -> Resolution {
        let found = try BookmarkFinder.find(Array(data), in: .current)
        return Resolution(
            url: FilePath.url(found.path, isDirectory: found.isDirectory), isStale: found.isStale, grant: found.grant,
            isInMount: found.isInMount)
    }
}
