import Foundation
import GrantModel

/// Finds the documents below a directory.
///
/// A document is a file, or a directory that a subclass of `UIDocument` reads and writes as a whole.
struct DocumentListing: Sendable {
    /// The extensions of documents' names, in lower case. If it is nil, every file is a document and no directory is.
    let extensions: Set<String>?

    /// Lists the documents. Parts of documents are not listed.
    ///
    /// - Throws: The error of reading `directory`. An unreadable directory below it has no documents.
    func items(in directory: URL, of grant: GrantID) throws -> [DocumentBrowser.Item] {
        // The enumerator gives an empty list of a directory that it cannot read.
        _ = try FileManager.default.contentsOfDirectory(atPath: directory.path)
        guard let found = Self.enumerator(of: directory) else { return [] }
        var items: [DocumentBrowser.Item] = []
        for case let url as URL in found {
            guard let values = try? url.resourceValues(forKeys: Self.keys), let isDirectory = Self.isDirectory(values) else { continue }
            guard isDocument(url.pathExtension, isDirectory: isDirectory) else { continue }
            if isDirectory { found.skipDescendants() }
            let parts = isDirectory ? Self.parts(of: url) : []
            let name = String(url.path.dropFirst(directory.path.count).drop { $0 == "/" })
            items.append(
                DocumentBrowser.Item(
                    url: url, grant: grant, name: name, size: (isDirectory ? parts : [values]).reduce(0) { $0 + ($1.fileSize ?? 0) },
                    modified: (parts + [values]).compactMap(\.contentModificationDate).max() ?? Date(timeIntervalSince1970: 0)))
        }
        return items
    }

    /// Returns the names of the document to which the item belongs: those of a document's part end at the document.
    func document(of below: [UInt8]) -> [UInt8] {
        let names = below.split(separator: UInt8(ascii: "/"))
        let outermost = names.dropLast().firstIndex { isDocument((FilePath.shown(Array($0)) as NSString).pathExtension, isDirectory: true) }
        guard let outermost else { return below }
        return Array(names[...outermost].joined(separator: [UInt8(ascii: "/")]))
    }

    private func isDocument(_ pathExtension: String, isDirectory: Bool) -> Bool {
        extensions?.contains(pathExtension.lowercased()) ?? !isDirectory
    }

    private static let keys: Set<URLResourceKey> = [.isRegularFileKey, .isDirectoryKey, .fileSizeKey, .contentModificationDateKey]

    private static func enumerator(of directory: URL) -> FileManager.DirectoryEnumerator? {
        FileManager.default.enumerator(at: directory, includingPropertiesForKeys: Array(keys), options: .skipsHiddenFiles)
    }

    /// Returns nil for a symbolic link, a device and other items that are no document.
    private static func isDirectory(_ values: URLResourceValues) -> Bool? {
        values.isDirectory == true ? true : values.isRegularFile == true ? false : nil
    }

    /// The files of a document that is a directory.
    private static func parts(of document: URL) -> [URLResourceValues] {
        guard let found = enumerator(of: document) else { return [] }
        var parts: [URLResourceValues] = []
        for case let part as URL in found {
            if let values = try? part.resourceValues(forKeys: keys), isDirectory(values) == false { parts.append(values) }
        }
        return parts
    }
}
