import Foundation
import GrantKit

/// The notes of earlier runs. A bookmark of each finds it again after a rename or a move.
struct RecentNotes {
    private let file: URL
    private var bookmarks: [Data]

    /// Reads the bookmarks from the file, which need not exist.
    init(file: URL) throws {
        self.file = file
        let isThere = FileManager.default.fileExists(atPath: file.path)
        bookmarks = isThere ? try PropertyListDecoder().decode([Data].self, from: Data(contentsOf: file)) : []
    }

    /// The notes in the order in which they were first opened. A note that cannot be found has no URL.
    var urls: [URL?] { bookmarks.map { try? resolved($0).url } }

    /// Makes a bookmark of a note, and returns its index. A note that is kept already gets a new one.
    mutating func keep(_ url: URL, at index: Int? = nil) throws -> Int {
        let isAccessed = url.startAccessingSecurityScopedResource()
        defer { if isAccessed { url.stopAccessingSecurityScopedResource() } }
        let bookmarkData = try url.bookmarkData(options: .minimalBookmark, includingResourceValuesForKeys: nil, relativeTo: nil)
        let index = index ?? urls.firstIndex { $0?.path == url.path } ?? bookmarks.endIndex
        bookmarks.replaceSubrange(index..<min(index + 1, bookmarks.endIndex), with: [bookmarkData])
        try PropertyListEncoder().encode(bookmarks).write(to: file, options: .atomic)
        return index
    }

    /// Returns where a note is now. A stale bookmark is renewed.
    mutating func url(at index: Int) throws -> URL {
        guard bookmarks.indices.contains(index) else { throw CocoaError(.fileNoSuchFile) }
        let (url, isStale) = try resolved(bookmarks[index])
        if isStale { _ = try keep(url, at: index) }
        return url
    }

    private func resolved(_ bookmarkData: Data) throws -> (url: URL, isStale: Bool) {
        var isStale = false
        let url = try URL(resolvingBookmarkData: bookmarkData, bookmarkDataIsStale: &isStale)
        return (url, isStale)
    }
}
