import Foundation
import GrantModel

extension URL {
    /// Writes the data of a bookmark to a file, all of it or nothing. There, Finder shows the file as an alias, and only data that was made with
    /// `suitableForBookmarkFile` may be written. Here it is a file like others, and any bookmark's data may. What is no bookmark is `fileReadCorruptFile`.
    public static func writeBookmarkData(_ data: Data, to bookmarkFileURL: URL) throws {
        try check(data, bookmarkFileURL)
        try data.write(to: bookmarkFileURL, options: .atomic)
    }

    /// The data of the bookmark in a file; `fileReadCorruptFile` when it is none.
    public static func bookmarkData(withContentsOf bookmarkFileURL: URL) throws -> Data {
        let data = try Data(contentsOf: bookmarkFileURL)
        try check(data, bookmarkFileURL)
        return data
    }

    /// What the bookmark in a file leads to. There, a file that is no alias, or the target of a symbolic link, is given as it is; here it is `fileReadCorruptFile`.
    public init(resolvingAliasFileAt url: URL, options: BookmarkResolutionOptions = []) throws {
        var isStale = false
        try self.init(resolvingBookmarkData: URL.bookmarkData(withContentsOf: url), options: options, bookmarkDataIsStale: &isStale)
    }

    private static func check(_ data: Data, _ url: URL) throws {
        do throws(GrantError) {
            _ = try BookmarkData.decoded(Array(data))
        } catch {
            throw CocoaError(error, url: url)
        }
    }
}
