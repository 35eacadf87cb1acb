import Foundation
import GrantAdministration
import GrantModel

/// The data of a bookmark as a value: to be kept, sent, compared. What `URL.bookmarkData` and `URL(resolvingBookmarkData:)` do, with errors that say
/// which they are.
public struct DirectoryBookmark: Sendable, Hashable, Codable {
    /// What `URL.bookmarkData` gives. Whoever has it can only use it together with the store that sealed it.
    public let data: Data

    /// Where a bookmark leads now.
    public struct Resolution: Sendable {
        /// In a mount of the grant's view when one shows it; else the item itself.
        public let url: URL
        /// The item is not where it was; a bookmark that is made anew of `url` is right again.
        public let isStale: Bool
        /// The grant it leads through; nil for a bookmark of an item alone.
        public let grant: Grant?
        /// Whether a revocation binds whoever uses `url`.
        public let isInMount: Bool
    }

    /// Data from wherever it was kept. `.invalidBookmark` when it is none; whether it leads somewhere is not looked at.
    public init(data: Data) throws(GrantError) {
        _ = try BookmarkData.decoded(Array(data))
        self.data = data
    }

    /// Of what lies at the URL: through the active grant that leads there, or, `isScoped` false, by its identity alone. Errors as `URL.bookmarkData` has them.
    public init(of url: URL, isScoped: Bool = true) throws(GrantError) {
        data = Data(try BookmarkMaker.data(of: url, scope: isScoped ? .required : .none, in: .current))
    }

    /// Errors as `URL(resolvingBookmarkData:)` has them: `.permission` for a grant that is withdrawn, `.notFound`, `.invalidBookmark`, `.ambiguous`.
    public func resolve() throws(GrantError) -> Resolution {
        let found = try BookmarkFinder.find(Array(data), in: .current)
        return Resolution(
            url: FilePath.url(found.path, isDirectory: found.isDirectory), isStale: found.isStale, grant: found.grant,
            isInMount: found.isInMount)
    }
}
