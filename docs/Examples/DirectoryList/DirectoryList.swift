import Foundation
import GrantKit

/// The directories that the user has chosen. The list keeps a bookmark of each, in a file named by a UUID.
///
/// This is the program of Apple's article “Providing access to directories”, with `import GrantKit` in place of `import UIKit`.
struct DirectoryList {
    struct Entry {
        let id: UUID
        /// The present URL, or nil if the bookmark cannot be resolved. `failure` then has the
        /// reason.
        var url: URL?
        var isStale = false
        var failure: String?
    }

    /// The directory of the bookmarks.
    let folder: URL
    private(set) var entries: [Entry] = []

    /// Loads all bookmarks.
    init(folder: URL) throws {
        self.folder = folder
        try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
        let files = try FileManager.default.contentsOfDirectory(at: folder, includingPropertiesForKeys: nil)
        entries = files.compactMap { file in
            UUID(uuidString: file.deletingPathExtension().lastPathComponent).map { load($0) }
        }.sorted { $0.id.uuidString < $1.id.uuidString }
    }

    private func file(_ id: UUID) -> URL { folder.appendingPathComponent(id.uuidString).appendingPathExtension("bookmark") }

    private func load(_ id: UUID) -> Entry {
        var entry = Entry(id: id)
        do {
            let bookmarkData = try Data(contentsOf: file(id))
            entry.url = try URL(resolvingBookmarkData: bookmarkData, bookmarkDataIsStale: &entry.isStale)
        } catch {
            entry.failure = DirectoryList.words(for: error)
        }
        return entry
    }

    /// Adds a directory. A document picker calls this with the picked URL.
    mutating func add(_ url: URL) throws -> UUID {
        // Start accessing a security-scoped resource.
        guard url.startAccessingSecurityScopedResource() else { throw CocoaError(.fileReadNoPermission) }

        // Make sure you release the security-scoped resource when you finish.
        defer { url.stopAccessingSecurityScopedResource() }

        let id = UUID()
        try save(url, as: id)
        entries.append(Entry(id: id, url: url))
        return id
    }

    private func save(_ url: URL, as id: UUID) throws {
        let bookmarkData = try url.bookmarkData(options: .minimalBookmark, includingResourceValuesForKeys: nil, relativeTo: nil)
        try bookmarkData.write(to: file(id), options: .atomic)
    }

    /// Replaces a stale bookmark by a new one of the resolved URL.
    mutating func renew(_ id: UUID) throws {
        guard let index = entries.firstIndex(where: { $0.id == id }), let url = entries[index].url else {
            throw CocoaError(.fileNoSuchFile)
        }
        guard url.startAccessingSecurityScopedResource() else { throw CocoaError(.fileReadNoPermission) }
        defer { url.stopAccessingSecurityScopedResource() }
        try save(url, as: id)
        entries[index].isStale = false
    }

    mutating func remove(_ id: UUID) throws {
        try FileManager.default.removeItem(at: file(id))
        entries.removeAll { $0.id == id }
    }

    /// The names of a directory's entries, with a `/` after those of directories.
    func contents(of id: UUID) throws -> [String] {
        guard let entry = entries.first(where: { $0.id == id }) else { throw CocoaError(.fileNoSuchFile) }
        guard let url = entry.url, url.startAccessingSecurityScopedResource() else { throw CocoaError(.fileReadNoPermission) }
        defer { url.stopAccessingSecurityScopedResource() }

        var names: [String] = []
        // Use file coordination for reading and writing any of the URL's content.
        var error: NSError? = nil
        NSFileCoordinator().coordinate(readingItemAt: url, error: &error) { (url) in
            let keys: [URLResourceKey] = [.nameKey, .isDirectoryKey]

            // Get an enumerator for the directory's content.
            guard let fileList = FileManager.default.enumerator(at: url, includingPropertiesForKeys: keys) else { return }

            for case let file as URL in fileList {
                // Start accessing the content's security-scoped URL.
                guard file.startAccessingSecurityScopedResource() else { continue }

                let isDirectory = (try? file.resourceValues(forKeys: Set(keys)).isDirectory) ?? false
                names.append(String(file.path.dropFirst(url.path.count + 1)) + (isDirectory ? "/" : ""))

                // Make sure you release the security-scoped resource when you finish.
                file.stopAccessingSecurityScopedResource()
            }
        }
        if let error { throw error }
        return names.sorted()
    }

    /// A description of the error and its reason, for people.
    static func words(for error: any Error) -> String {
        if let error = error as? CocoaError, let underlying = error.underlying { return "\(underlying)" }
        return "\((error as? GrantError)?.description ?? error.localizedDescription)"
    }
}
