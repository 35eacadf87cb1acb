import Foundation
import GrantModel

// The forms of older programs. Each does what the one of `URL` does.
extension NSURL {
    /// Makes a bookmark's data: see `URL.bookmarkData(options:includingResourceValuesForKeys:relativeTo:)`.
    public func bookmarkData(
        options: BookmarkCreationOptions = [], includingResourceValuesForKeys keys: [URLResourceKey]? = nil,
        relativeTo relativeURL: URL? = nil
    ) throws -> Data {
        try whole().bookmarkData(options: options, includingResourceValuesForKeys: keys.map { Set($0) }, relativeTo: relativeURL)
    }

    /// Resolves a bookmark: see `URL.init(resolvingBookmarkData:options:relativeTo:bookmarkDataIsStale:)`.
    public convenience init(
        resolvingBookmarkData bookmarkData: Data, options: BookmarkResolutionOptions = [], relativeTo relativeURL: URL? = nil,
        bookmarkDataIsStale isStale: UnsafeMutablePointer<ObjCBool>?
    ) throws {
        var wasMoved = false
        let url = try URL(
            resolvingBookmarkData: bookmarkData, options: options, relativeTo: relativeURL, bookmarkDataIsStale: &wasMoved)
        isStale?.pointee = ObjCBool(wasMoved)
        self.init(fileURLWithPath: url.path, isDirectory: url.hasDirectoryPath)
    }

    /// Resolves the bookmark in a file: see `URL.init(resolvingAliasFileAt:options:)`.
    public convenience init(resolvingAliasFileAt url: URL, options: BookmarkResolutionOptions = []) throws {
        let url = try URL(resolvingAliasFileAt: url, options: options)
        self.init(fileURLWithPath: url.path, isDirectory: url.hasDirectoryPath)
    }

    /// Returns the resource values in a bookmark's data: see `URL.resourceValues(forKeys:fromBookmarkData:)`.
    public class func resourceValues(forKeys keys: [URLResourceKey], fromBookmarkData bookmarkData: Data) -> [URLResourceKey: Any]? {
        URL.resourceValues(forKeys: Set(keys), fromBookmarkData: bookmarkData)?.allValues
    }

    /// Writes a bookmark's data to a file: see `URL.writeBookmarkData(_:to:)`. The options have no effect, as there.
    public class func writeBookmarkData(_ bookmarkData: Data, to bookmarkFileURL: URL, options: Int = 0) throws {
        try URL.writeBookmarkData(bookmarkData, to: bookmarkFileURL)
    }

    /// Reads a bookmark's data from a file: see `URL.bookmarkData(withContentsOf:)`.
    public class func bookmarkData(withContentsOf bookmarkFileURL: URL) throws -> Data {
        try URL.bookmarkData(withContentsOf: bookmarkFileURL)
    }

    /// Starts access: see `URL.startAccessingSecurityScopedResource()`.
    public func startAccessingSecurityScopedResource() -> Bool { absoluteURL?.startAccessingSecurityScopedResource() ?? false }

    /// Ends one start: see `URL.stopAccessingSecurityScopedResource()`.
    public func stopAccessingSecurityScopedResource() { absoluteURL?.stopAccessingSecurityScopedResource() }

    private func whole() throws -> URL {
        guard let url = absoluteURL else { throw CocoaError(.fileReadUnsupportedScheme) }
        return url
    }
}
