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

    /// Asks the filesystem itself. A link is followed, as the document does. The result is nil if
    /// there is no such file, or it may not be looked up.
    init?(of url: URL) {
        guard let path = try? FilePath.words(url), let file = try? FileDescriptor.open(path, OpenFlags.path),
            let status = try? file.freshStatus().st
        else { return nil }
        (inode, size) = (UInt64(status.st_ino), Int64(status.st_size))
        (seconds, nanoseconds) = (status.st_mtim.tv_sec, status.st_mtim.tv_nsec)
        isLinked = status.st_nlink > 0
    }

    var date: Date { Date(timeIntervalSince1970: Double(seconds) + Double(nanoseconds) / 1e9) }
}

// The methods with a completion handler, without one. In Swift 5, code outside of functions would take these where it awaits the
// asynchronous ones of the same names.
@available(swift, introduced: 6)
extension UIDocument {
    /// The same without a handler.
    public final func open() { open(completionHandler: nil) }
    /// The same without a handler.
    public final func save(to url: URL, for operation: SaveOperation) { save(to: url, for: operation, completionHandler: nil) }
    /// The same without a handler.
    public final func autosave() { autosave(completionHandler: nil) }
    /// The same without a handler.
    public final func close() { close(completionHandler: nil) }
    /// The same without a handler.
    public final func revert(toContentsOf url: URL) { revert(toContentsOf: url, completionHandler: nil) }
}

// Opening, saving, closing.
extension UIDocument {
    /// Reads the file. Returns false on failure, after calling `handleError`. The document is a presenter from then on, until `close`.
    public final func open() async -> Bool { await answer { open(completionHandler: $0) } }

    /// Saves to `url`, as a new file or over the document's own. Afterwards the document is at
    /// `url`, and open.
    ///
    /// - Returns: False on failure, after calling `handleError`. Then the changes are kept.
    public final func save(to url: URL, for operation: SaveOperation) async -> Bool {
        await answer { save(to: url, for: operation, completionHandler: $0) }
    }

    /// Saves unsaved changes, if there are any and no conflict. Returns false on failure.
    public final func autosave() async -> Bool { await answer { autosave(completionHandler: $0) } }

    /// Saves unsaved changes, and ends the document's part in coordination. Returns false if that fails: the document stays open, with
    /// its changes.
    public final func close() async -> Bool { await answer { close(completionHandler: $0) } }

    /// Replaces the contents by those at `url`, usually its own file. Unsaved changes are lost, and a conflict ends.
    public final func revert(toContentsOf url: URL) async -> Bool { await answer { revert(toContentsOf: url, completionHandler: $0) } }

    private func answer(_ begin: (@escaping @MainActor @Sendable (Bool) -> Void) -> Void) async -> Bool {
        await withCheckedContinuation { continuation in begin { continuation.resume(returning: $0) } }
    }

    func performOpen() async -> Bool {
        do {
            try await read(fileURL, registering: true)
            return true
        } catch {
            handleError(error, userInteractionPermitted: true)
            return false
        }
    }

    /// With `isNew`, a file that exists at `url` is not replaced.
    func performSave(to url: URL, for operation: SaveOperation, isNew: Bool = false) async -> Bool {
        do {
            try await write(to: url, for: operation, isNew: isNew)
            return true
        } catch {
            handleError(error, userInteractionPermitted: true)
            return false
        }
    }

    func performAutosave() async -> Bool {
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

    func performClose() async -> Bool {
        autosaving?.cancel()
        if documentState.contains(.closed) { return true }
        guard await autosave() else { return false }
        await turn()
        defer { endTurn() }
        NSFileCoordinator.removeFilePresenter(presentation)
        documentState = .closed
        return true
    }

    func performRevert(toContentsOf url: URL) async -> Bool {
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

    private func begin(isNew: Bool = false) -> DocumentAccess {
        let access = DocumentAccess(isNew: isNew)
        progress = access.progress
        documentState.insert(.progressAvailable)
        return access
    }

    private func read(_ url: URL, registering: Bool) async throws {
        await turn()
        defer { endTurn() }
        let (access, presentation, isOwn, before) = (begin(), presentation, url == fileURL, deletions)
        let options: NSFileCoordinator.ReadingOptions = registering ? .resolvesSymbolicLink : [.resolvesSymbolicLink, .withoutChanges]
        let read: Result<DocumentVersion?, any Error>
        do {
            let intent = NSFileAccessIntent.readingIntent(with: url, options: options)
            read = try await CoordinatedFiles.claim([intent], purpose: .init(of: presentation), cancellation: access.cancellation) {
                places in
                let place = places[0]
                // Under one claim, so that no change is missed.
                let version = DocumentVersion(of: place)
                try access.run { try self.read(from: place) }
                if isOwn { presentation.present(place) }
                if registering { NSFileCoordinator.addFilePresenter(presentation) }
                return version
            }
        } catch {
            throw CocoaError.error(error, url: url, isWriting: false)
        }
        do {
            let version = try read.get()
            if let data = access.state.withLock({ $0.data }) { try load(fromContents: data, ofType: fileType) }
            if isOwn { (seen, fileModificationDate) = (version, version?.date) }
            savedChanges = changes
            let isDeleted = deletions != before
            if isDeleted, registering { throw CocoaError(.fileReadNoSuchFile, userInfo: [NSURLErrorKey: url]) }
            documentState.subtract(isDeleted ? [.inConflict, .savingError] : [.closed, .inConflict, .savingError])
        } catch {
            if registering { NSFileCoordinator.removeFilePresenter(presentation) }
            throw error
        }
    }

    /// Waits for writers: their changes are noticed before this save overwrites them, as a conflict.
    private func write(to url: URL, for operation: SaveOperation, isNew: Bool = false) async throws {
        await turn()
        defer { endTurn() }
        let token = changeCountToken(for: operation)
        // `writeContents` may use them on any thread: nothing else does until it returns.
        nonisolated(unsafe) let contents = try contents(forType: fileType ?? "")
        let (access, presentation, before) = (begin(isNew: isNew), presentation, deletions)
        // A deliberate save over others' changes replaces them.
        let expected = documentState.contains(.inConflict) || url != fileURL || operation == .forCreating ? nil : seen
        do {
            let intent = NSFileAccessIntent.writing(url, options: .forReplacing, followsLink: true)
            let saved: (DocumentVersion?, URL)
            do {
                saved = try await CoordinatedFiles.claim([intent], purpose: .init(of: presentation), cancellation: access.cancellation) {
                    places in
                    let place = places[0]
                    if let expected, let now = DocumentVersion(of: place), now != expected { throw Conflict() }
                    try access.run { try self.writeContents(contents, safelyTo: place, for: operation) }
                    return (DocumentVersion(of: place), place)
                }.get()
            } catch let error as CoordinationError {
                throw CocoaError.error(error, url: url, isWriting: true)
            }
            let isDeleted = url == fileURL && deletions != before
            if !isDeleted, url != fileURL || documentState.contains(.closed) {
                NSFileCoordinator.removeFilePresenter(presentation)
                presentation.move(to: url)
                presentation.present(saved.1)
                NSFileCoordinator.addFilePresenter(presentation)
            }
            (seen, fileModificationDate) = (saved.0, saved.0?.date)
            updateChangeCount(withToken: token, for: operation)
            documentState.subtract(isDeleted ? [.inConflict, .savingError] : [.closed, .inConflict, .savingError])
            if hasUnsavedChanges, !isDeleted { scheduleAutosave() }
        } catch is Conflict {
            documentState.insert(.inConflict)
            throw CocoaError(
                .fileWriteUnknown,
                userInfo: [
                    NSURLErrorKey: url, NSDebugDescriptionErrorKey: "another program has changed the file meanwhile",
                    NSLocalizedDescriptionKey: "“\(url.lastPathComponent)” could not be saved.",
                    NSLocalizedFailureReasonErrorKey: "Another program has changed it meanwhile.",
                    NSLocalizedRecoverySuggestionErrorKey: "Save this version, or return to the other one.",
                ])
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
        // It is work of its own, even if the change is made under a claim.
        autosaving = CoordinatedWork.apart {
            Task { @MainActor [weak self] in
                guard (try? await Task.sleep(for: delay)) != nil, let self else { return }
                autosaving = nil
                GrantEnvironment.$current.withValue(presentation.environment) { autosave(completionHandler: nil) }
            }
        }
    }
}
