import Foundation
import GrantAdministration
import GrantModel
import GrantSystem

/// Told of picked, made and imported documents. The methods have the names of `UIDocumentBrowserViewControllerDelegate`.
@preconcurrency @MainActor public protocol DocumentBrowserDelegate: AnyObject {
    /// The person wants a new document. Make one anywhere, then call the handler with its URL, or with nil to make none.
    func documentBrowser(
        _ controller: DocumentBrowser,
        didRequestDocumentCreationWithHandler importHandler: @escaping @Sendable (URL?, DocumentBrowser.ImportMode) -> Void
    )
    /// The person has picked these documents.
    func documentBrowser(_ controller: DocumentBrowser, didPickDocumentsAt documentURLs: [URL])
    /// The new document is in a granted directory.
    func documentBrowser(_ controller: DocumentBrowser, didImportDocumentAt sourceURL: URL, toDestinationURL destinationURL: URL)
    /// It could not be imported.
    func documentBrowser(_ controller: DocumentBrowser, failedToImportDocumentAt documentURL: URL, error: (any Error)?)
}

/// Defaults for Apple's optional methods.
extension DocumentBrowserDelegate {
    public func documentBrowser(
        _ controller: DocumentBrowser,
        didRequestDocumentCreationWithHandler importHandler: @escaping @Sendable (URL?, DocumentBrowser.ImportMode) -> Void
    ) { importHandler(nil, .none) }
    public func documentBrowser(_ controller: DocumentBrowser, didPickDocumentsAt documentURLs: [URL]) {}
    public func documentBrowser(_ controller: DocumentBrowser, didImportDocumentAt sourceURL: URL, toDestinationURL destinationURL: URL) {}
    public func documentBrowser(_ controller: DocumentBrowser, failedToImportDocumentAt documentURL: URL, error: (any Error)?) {}
}

// What a person does in the program's list.
extension DocumentBrowser {
    /// What becomes of a document that is imported.
    public enum ImportMode: UInt, Sendable {
        /// It is not imported.
        case none
        /// It stays, and a copy is imported.
        case copy
        /// It is moved.
        case move
    }

    /// Reports to the delegate that the person has picked documents of the list.
    public func pick(_ items: [Item]) { delegate?.documentBrowser(self, didPickDocumentsAt: items.map(\.url)) }

    /// Has the delegate make a document, and imports that.
    ///
    /// - Parameter directory: Where the document is to be. The default is the first directory.
    public func requestDocumentCreation(in directory: GrantedDirectory? = nil) {
        let directory = directory ?? directories.first
        delegate?.documentBrowser(self) { [weak self] url, mode in
            Task { @MainActor in
                guard let self, let url, mode != .none else { return }
                do {
                    guard let directory else { throw CocoaError(.fileNoSuchFile) }
                    let place = try await self.importDocument(at: url, into: directory.url, mode: mode)
                    self.delegate?.documentBrowser(self, didImportDocumentAt: url, toDestinationURL: place)
                } catch {
                    self.delegate?.documentBrowser(self, failedToImportDocumentAt: url, error: error)
                }
            }
        }
    }

    /// Imports a document beside another one. A document that has the name already is not replaced: the new one gets a number.
    ///
    /// - Parameters:
    ///   - documentURL: The document, anywhere.
    ///   - neighbourURL: A document or directory of the browser.
    ///   - mode: Whether the document is copied or moved. `.none` imports nothing.
    /// - Returns: Where the document is now.
    /// - Throws: A `CocoaError`.
    public func importDocument(at documentURL: URL, nextToDocumentAt neighbourURL: URL, mode: ImportMode) async throws -> URL {
        let directory = directories.contains { $0.url.path == neighbourURL.path } ? neighbourURL : neighbourURL.deletingLastPathComponent()
        return try await importDocument(at: documentURL, into: directory, mode: mode)
    }

    /// The same with a handler, which gets the URL or the error.
    public func importDocument(
        at documentURL: URL, nextToDocumentAt neighbourURL: URL, mode: ImportMode,
        completionHandler: @escaping @MainActor @Sendable (URL?, (any Error)?) -> Void
    ) {
        answer(completionHandler) { try await $0.importDocument(at: documentURL, nextToDocumentAt: neighbourURL, mode: mode) }
    }

    /// Makes sure that the list shows a document, even if the filter would hide it. There, the browser scrolls to it.
    ///
    /// - Parameters:
    ///   - url: The document or a part of it, in a mount or on the host.
    ///   - importIfNeeded: Whether a document that is in no directory of the browser is copied into the first one.
    /// - Returns: The document's URL as the list has it.
    /// - Throws: A `CocoaError`: `fileNoSuchFile` if it is in no directory of the browser.
    @discardableResult public func revealDocument(at url: URL, importIfNeeded: Bool) async throws -> URL {
        var place = own(url)
        if place == nil, importIfNeeded, let directory = directories.first {
            place = try await importDocument(at: url, into: directory.url, mode: .copy)
        }
        guard let place, FileManager.default.fileExists(atPath: place.path) else {
            throw CocoaError(.fileNoSuchFile, userInfo: [NSURLErrorKey: url, NSFilePathErrorKey: url.path])
        }
        await GrantEnvironment.$current.withValue(environment) { await list() }
        changed()
        if !items.contains(where: { $0.url.path == place.path }) { filter = "" }
        return items.first { $0.url.path == place.path }?.url ?? place
    }

    /// The same with a handler, which gets the URL or the error.
    public func revealDocument(
        at url: URL, importIfNeeded: Bool, completion: (@MainActor @Sendable (URL?, (any Error)?) -> Void)? = nil
    ) {
        answer(completion) { try await $0.revealDocument(at: url, importIfNeeded: importIfNeeded) }
    }

    private func answer(
        _ completion: (@MainActor @Sendable (URL?, (any Error)?) -> Void)?,
        _ body: @escaping @MainActor @Sendable (DocumentBrowser) async throws -> URL
    ) {
        Task { @MainActor in
            do {
                let url = try await body(self)
                completion?(url, nil)
            } catch {
                completion?(nil, error)
            }
        }
    }

    /// Returns the URL of the document, or of the document that it is a part of, in a directory of the browser. It is nil if it is in none.
    private func own(_ url: URL) -> URL? {
        GrantEnvironment.$current.withValue(environment) {
            guard let path = try? FilePath.canonical(url), let administrator = try? environment.administrator(),
                let place = try? GrantedPlace(path, administrator: administrator), !place.below.isEmpty,
                let directory = directories.first(where: { $0.id == place.grant.id }), let root = try? FilePath.words(directory.url)
            else { return nil }
            let below = listing.document(of: place.below)
            return FilePath.url(FilePath.join(root, below), isDirectory: below != place.below || url.hasDirectoryPath)
        }
    }

    private func importDocument(at url: URL, into directory: URL, mode: ImportMode) async throws -> URL {
        guard mode != .none else { throw CocoaError(.userCancelled, userInfo: [NSURLErrorKey: url]) }
        return try await GrantEnvironment.$current.withValue(environment) {
            for number in 1...ImportedDocument.maxAttempts {
                let place = ImportedDocument.place(for: url, in: directory, number)
                // Only a hint: the name may be taken until the document has it.
                if (try? FileManager.default.attributesOfItem(atPath: place.path)) != nil { continue }
                do {
                    let source =
                        mode == .move ? NSFileAccessIntent.writingIntent(with: url, options: .forMoving) : .readingIntent(with: url)
                    try await Self.coordinated([source, .writingIntent(with: place)], isMove: mode == .move) {
                        try ImportedDocument.put($0, at: $1, moves: mode == .move)
                    }
                    changed()
                    return place
                } catch let error as CocoaError where error.code == .fileWriteFileExists {
                    continue
                }
            }
            throw CocoaError(.fileWriteFileExists, userInfo: [NSURLErrorKey: url])
        }
    }
}

/// Puts a document into a directory under a name that is free.
private enum ImportedDocument {
    /// The greatest number in a name.
    static let maxAttempts = 1000

    /// `NAME.EXT`, `NAME 2.EXT` and so on.
    static func place(for url: URL, in directory: URL, _ number: Int) -> URL {
        if number == 1 { return directory.appendingPathComponent(url.lastPathComponent, isDirectory: url.hasDirectoryPath) }
        let name = url.deletingPathExtension().lastPathComponent + " \(number)"
        let place = directory.appendingPathComponent(name, isDirectory: url.hasDirectoryPath)
        return url.pathExtension.isEmpty ? place : place.appendingPathExtension(url.pathExtension)
    }

    /// The document appears whole, and replaces none.
    static func put(_ source: URL, at place: URL, moves: Bool) throws {
        do {
            let (from, to) = (try FilePath.words(source), try FilePath.words(place))
            let directory = try FileDescriptor.open(CanonicalPath.parent(of: to), OpenFlags.path | O_DIRECTORY)
            if moves, try move(from, to: CanonicalPath.lastName(of: to), in: directory) { return }
            let temporary = Array(".\(GrantID.random().description.prefix(16)).importing".utf8)
            let copy = FilePath.url(CanonicalPath.join(CanonicalPath.parent(of: to), temporary), isDirectory: source.hasDirectoryPath)
            do {
                try FileManager.default.copyItem(at: source, to: copy)
                try DirectoryEntry.rename(directory.number, temporary, to: CanonicalPath.lastName(of: to))
            } catch {
                try? FileManager.default.removeItem(at: copy)
                throw error
            }
            if moves { try FileManager.default.removeItem(at: source) }
        } catch let error as Errno {
            throw CocoaError(error, url: place, isWriting: true)
        }
    }

    /// Returns false if the directory is on another filesystem, or in another grant.
    private static func move(_ from: [UInt8], to name: [UInt8], in directory: borrowing FileDescriptor) throws(Errno) -> Bool {
        let old = try FileDescriptor.open(CanonicalPath.parent(of: from), OpenFlags.path | O_DIRECTORY)
        do throws(Errno) {
            try DirectoryEntry.move(old.number, CanonicalPath.lastName(of: from), to: directory.number, name)
            return true
        } catch {
            if error == Errno(EXDEV) { return false }
            throw error
        }
    }
}
