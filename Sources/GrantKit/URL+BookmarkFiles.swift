import Foundation
import GrantModel

extension URL {
    /// Writes a bookmark's data to a file, atomically. Invalid data is `fileReadCorruptFile`. There, Finder shows the file as an alias,
    /// and the data must be made with `suitableForBookmarkFile`. Here it is an ordinary file, for any bookmark's data.
    public static func writeBookmarkData(_ data: Data, to bookmarkFileURL: URL) throws {
        try check(data, bookmarkFileURL)
        try data.write(to: bookmarkFileURL, options: .atomic)
    }

    /// Reads a bookmark's data from a file.
    ///
    /// - Throws: `fileReadCorruptFile` if the data is invalid, and errors of reading the file.
    public static func bookmarkData(withContentsOf bookmarkFileURL: URL) throws -> Data {
        let data = try Data(contentsOf: bookmarkFileURL)
        try check(data, bookmarkFileURL)
        return data
    }

    /// Resolves the bookmark in a file. There, a file that is not an alias is returned unchanged,
    /// and a symbolic link gives its target. Here, a file without a bookmark fails with
    /// `fileReadCorruptFile`.
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
