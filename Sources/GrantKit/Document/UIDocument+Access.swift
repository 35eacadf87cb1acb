import Foundation
import GrantAdministration
import GrantSystem

/// The version of a file. Every save changes at least one of these properties.
struct DocumentVersion: Equatable, Sendable {
    private let inode: UInt64
    private let size: Int64
    private let seconds: Int
    private let nanoseconds: Int

    /// Whether a name leads to the file. In a mount, the kernel's cached name may lead to a file that has been replaced.
    let isLinked: Bool

    /// Asks the filesystem itself. nil if there is no such file, or it may not be looked up.
    init?(of url: URL) {
        guard let path = try? FilePath.words(url), let file = try? FileDescriptor.open(path, OpenFlags.path | O_NOFOLLOW),
            let status = try? file.freshStatus().st
        else { return nil }
        (inode, size) = (UInt64(status.st_ino), Int64(status.st_size))
        (seconds, nanoseconds) = (status.st_mtim.tv_sec, status.st_mtim.tv_nsec)
        isLinked = status.st_nlink > 0
    }

    var date: Date { Date(timeIntervalSince1970: Double(seconds) + Double(nanoseconds) / 1e9) }
}

// Opening, saving, closing.
extension UIDocument {
    /// Reads the file. Returns false on failure, after calling `handleError`. The document is a presenter from then on, until `close`.
    public func open() async -> Bool {
        do {
            try await read(fileURL, registering: true)
            return true
        } catch {
            handleError(error, userInteractionPermitted: true)
            return false
        }
    }

    /// The same with a completion handler.
    public func open(completionHandler: (@Sendable (Bool) -> Void)?) {
        Task { @MainActor in
            let isOpen = await open()
            completionHandler?(isOpen)
        }
    }

    /// Saves to `url`, as a new file or over the document's own. Afterwards the document is at `url`, and open. Returns false on
    /// failure, after calling `handleError`; the changes are kept.
    public func save(to url: URL, for operation: SaveOperation) async -> Bool {
        do {
            try await write(to: url, for: operation)
            return true
        } catch {
            handleError(error, userInteractionPermitted: true)
            return false
        }
    }

    /// The same with a completion handler.
    public func save(to url: URL, for operation: SaveOperation, completionHandler: (@Sendable (Bool) -> Void)?) {
        Task { @MainActor in
            let isSaved = await save(to: url, for: operation)
            completionHandler?(isSaved)
        }
    }

    /// Saves unsaved changes, if there are any and no conflict. Returns false on failure.
    public func autosave() async -> Bool {
        guard hasUnsavedChanges else { return true }
        guard !documentState.contains(.closed), !documentState.contains(.inConflict) else { return false }
        do {
            try await write(to: fileURL, for: .forOverwriting)
            return true
        } catch {
            handleError(error, userInteractionPermitted: false)
            return false
        }
    }

    /// Saves unsaved changes, and ends the document's part in coordination. Returns false if that fails: the document stays open, with
    /// its changes.
    public func close() async -> Bool {
        autosaving?.cancel()
        if documentState.contains(.closed) { return true }
        guard await autosave() else { return false }
        await turn()
        defer { endTurn() }
        NSFileCoordinator.removeFilePresenter(presentation)
        documentState = .closed
        return true
    }

    /// The same with a completion handler.
    public func close(completionHandler: (@Sendable (Bool) -> Void)?) {
        Task { @MainActor in
            let isClosed = await close()
            completionHandler?(isClosed)
        }
    }

    /// Replaces the contents by those at `url`, usually its own file. Unsaved changes are lost, and a conflict ends.
    public func revert(toContentsOf url: URL) async -> Bool {
        documentState.insert(.editingDisabled)
        disableEditing()
        defer {
            documentState.remove(.editingDisabled)
            enableEditing()
        }
        do {
            try await read(url, registering: false)
            return true
        } catch {
            handleError(error, userInteractionPermitted: true)
            return false
        }
    }

    /// The same with a completion handler.
    public func revert(toContentsOf url: URL, completionHandler: (@Sendable (Bool) -> Void)?) {
        Task { @MainActor in
            let isReverted = await revert(toContentsOf: url)
            completionHandler?(isReverted)
        }
    }

    // MARK: one thing at a time

    /// Waits until no read or save is under way, and begins one.
    func turn() async {
        while isSaving { await withCheckedContinuation { waiting.append($0) } }
        isSaving = true
    }

    func endTurn() {
        isSaving = false
        (progress, documentState) = (nil, documentState.subtracting(.progressAvailable))
        let next = waiting
        waiting = []
        for one in next { one.resume() }
    }

    private func begin() -> Progress {
        let started = Progress(totalUnitCount: 1)
        progress = started
        documentState.insert(.progressAvailable)
        return started
    }

    private func read(_ url: URL, registering: Bool) async throws {
        await turn()
        defer { endTurn() }
        let (progress, presentation) = (begin(), presentation)
        let read: Result<(Data, DocumentVersion?), any Error>
        do {
            read = try await CoordinatedFiles.read(url, options: registering ? [] : .withoutChanges, purpose: .init(of: presentation)) {
                place in
                // Under one claim, so that no change is missed.
                let version = DocumentVersion(of: place)
                let data = try DocumentFile.read(place, progress)
                if registering { NSFileCoordinator.addFilePresenter(presentation) }
                return (data, version)
            }
        } catch {
            throw CocoaError.error(error, url: url, isWriting: false)
        }
        do {
            let (data, version) = try read.get()
            try load(fromContents: data, ofType: fileType)
            if url == fileURL { (seen, fileModificationDate) = (version, version?.date) }
            savedChanges = changes
            documentState.subtract([.closed, .inConflict, .savingError])
        } catch {
            if registering { NSFileCoordinator.removeFilePresenter(presentation) }
            throw error
        }
    }

    /// Waits for writers: their changes are noticed before this save overwrites them, as a conflict.
    private func write(to url: URL, for operation: SaveOperation) async throws {
        await turn()
        defer { endTurn() }
        let token = changeCountToken(for: operation)
        guard let data = try contents(forType: fileType ?? "") as? Data else {
            throw CocoaError(
                .featureUnsupported, userInfo: [NSURLErrorKey: url, NSDebugDescriptionErrorKey: "contents(forType:) gave no Data"])
        }
        let (progress, presentation, isNew) = (begin(), presentation, operation == .forCreating)
        // A deliberate save over others' changes replaces them.
        let expected = documentState.contains(.inConflict) || url != fileURL || isNew ? nil : seen
        do {
            let version: DocumentVersion?
            do {
                version = try await CoordinatedFiles.write(url, options: .forReplacing, purpose: .init(of: presentation)) { place in
                    if let expected, let now = DocumentVersion(of: place), now != expected { throw Conflict() }
                    try DocumentFile.write(data, to: place, isNew: isNew, progress)
                    return DocumentVersion(of: place)
                }.get()
            } catch let error as CoordinationError {
                throw CocoaError.error(error, url: url, isWriting: true)
            }
            if url != fileURL || documentState.contains(.closed) {
                NSFileCoordinator.removeFilePresenter(presentation)
                presentation.move(to: url)
                NSFileCoordinator.addFilePresenter(presentation)
            }
            (seen, fileModificationDate) = (version, version?.date)
            updateChangeCount(withToken: token, for: operation)
            documentState.subtract([.closed, .inConflict, .savingError])
            if hasUnsavedChanges { scheduleAutosave() }
        } catch is Conflict {
            documentState.insert(.inConflict)
            throw CocoaError(
                .fileWriteUnknown,
                userInfo: [NSURLErrorKey: url, NSDebugDescriptionErrorKey: "somebody else has changed the file meanwhile"])
        } catch {
            documentState.insert(.savingError)
            throw error
        }
    }

    /// A process that does not coordinate has changed the file.
    private struct Conflict: Error {}

    func scheduleAutosave() {
        guard autosaving == nil || autosaving?.isCancelled == true else { return }
        let delay = autosaveDelay
        autosaving = Task { @MainActor [weak self] in
            guard (try? await Task.sleep(for: delay)) != nil, let self else { return }
            autosaving = nil
            GrantEnvironment.$current.withValue(presentation.environment) { autosave(completionHandler: nil) }
        }
    }
}
