import Foundation
import GrantSystem

/// The presenter of a document, which passes messages on to the main actor. It does not retain the document: once that is gone, it
/// answers at once.
final class DocumentPresentation: NSObject, NSFilePresenter, @unchecked Sendable {
    // Safe to share: mutable state is behind `url`. `document` is set before this is shared, and
    // read by the main actor alone.
    private let url: Lock<(named: URL, presented: URL)>
    nonisolated(unsafe) weak var document: UIDocument?
    let presentedItemOperationQueue = OperationQueue()
    /// The environment of the code that made the document: work that others cause runs in it, too.
    let environment = GrantEnvironment.current

    init(_ url: URL) {
        self.url = Lock((url, url))
        super.init()
        presentedItemOperationQueue.maxConcurrentOperationCount = 1
    }

    /// The file itself, where the document's URL is a link to it.
    var presentedItemURL: URL? { url.withLock { $0.presented } }
    var namedURL: URL { url.withLock { $0.named } }
    func move(to new: URL) { url.withLock { $0 = (new, new) } }
    /// Sets where the document's URL leads.
    func present(_ place: URL) { url.withLock { $0.presented = place } }

    /// Runs work on the document on the main actor.
    private func ask(_ work: @escaping @MainActor @Sendable (UIDocument) async -> Void, gone: @escaping @Sendable () -> Void = {}) {
        Task { @MainActor in
            guard let document else { return gone() }
            await GrantEnvironment.$current.withValue(environment) { await work(document) }
        }
    }

    /// Unsaved changes are saved by `savePresentedItemChanges`, which comes before a reader.
    func relinquishPresentedItem(toReader reader: @escaping @Sendable ((@Sendable () -> Void)?) -> Void) { reader(nil) }

    /// The user cannot edit while another claimant writes. A save waits for the claim by itself.
    func relinquishPresentedItem(toWriter writer: @escaping @Sendable ((@Sendable () -> Void)?) -> Void) {
        ask(
            { document in
                document.documentState.insert(.editingDisabled)
                document.disableEditing()
                writer { [self] in
                    ask({ document in
                        document.documentState.remove(.editingDisabled)
                        document.enableEditing()
                    })
                }
            }, gone: { writer(nil) })
    }

    /// The claimant waits for the answer, so the file belongs to this program alone and needs no claim.
    func savePresentedItemChanges(completionHandler: @escaping @Sendable ((any Error)?) -> Void) {
        ask({ await $0.saveForOthers(completionHandler) }, gone: { completionHandler(nil) })
    }

    func accommodatePresentedItemDeletion(completionHandler: @escaping @Sendable ((any Error)?) -> Void) {
        ask(
            { document in
                document.wasDeleted()
                completionHandler(nil)
            }, gone: { completionHandler(nil) })
    }

    func presentedItemDidMove(to newURL: URL) {
        move(to: newURL)
        ask({ $0.didMove() })
    }

    func presentedItemDidChange() { ask({ await $0.didChange() }) }
}

extension UIDocument {
    /// Saves without a claim, because the claimant holds one and waits.
    func saveForOthers(_ answer: @escaping @Sendable ((any Error)?) -> Void) async {
        // A save in progress waits for the same claim: it cannot end before this is answered.
        guard hasUnsavedChanges, !documentState.contains(.closed), !documentState.contains(.inConflict) else { return answer(nil) }
        do {
            let token = changeCountToken(for: .forOverwriting)
            // `writeContents` may use them on any thread: nothing else does until it returns.
            nonisolated(unsafe) let contents = try contents(forType: fileType ?? "")
            let url = presentation.presentedItemURL ?? fileURL
            if let seen, let now = DocumentVersion(of: url), now != seen {
                documentState.insert(.inConflict)
                return answer(nil)
            }
            let version = try await writeUnclaimed(contents, to: url)
            (seen, fileModificationDate) = (version, version?.date)
            updateChangeCount(withToken: token, for: .forOverwriting)
            documentState.remove(.savingError)
            answer(nil)
        } catch {
            documentState.insert(.savingError)
            answer(error)
        }
    }

    @concurrent private nonisolated func writeUnclaimed(_ contents: sending Any, to url: URL) async throws -> DocumentVersion? {
        let own = PresenterRegistry.process.presenters(of: PresenterRegistry.purpose(of: presentation))
        for presenter in own { presenter.beginWriting() }
        defer { for presenter in own { presenter.endWriting() } }
        try writeContents(contents, safelyTo: url, for: .forOverwriting)
        return DocumentVersion(of: url)
    }

    /// The file is about to be deleted: nothing more is saved to it, and the contents stay here to be saved elsewhere.
    func wasDeleted() {
        autosaving?.cancel()
        deletions += 1
        NSFileCoordinator.removeFilePresenter(presentation)
        documentState.insert(.closed)
        // The end of the deletion is not told: the document is no presenter any more.
        if documentState.remove(.editingDisabled) != nil { enableEditing() }
    }

    func didMove() {
        // A rename over another file, or a copy in its place, is another version.
        if let now = DocumentVersion(of: fileURL), now != seen { Task { await didChange() } }
        tellState()
    }

    /// Others have changed the file, or may have: it is read again, unless there are unsaved changes.
    func didChange() async {
        guard !documentState.contains(.closed) else { return }
        await turn()
        endTurn()
        var now = DocumentVersion(of: fileURL)
        // Cached names in a mount expire within a second, also those of a restored grant.
        for _ in 0..<50 where now?.isLinked != true {
            try? await Task.sleep(for: .milliseconds(20))
            now = DocumentVersion(of: fileURL)
        }
        guard let now else { return }
        if now == seen {
            // The grant may be restored: try the failed saves again.
            if hasUnsavedChanges, documentState.contains(.savingError) { scheduleAutosave() }
            return
        }
        if hasUnsavedChanges {
            documentState.insert(.inConflict)
            return
        }
        _ = await revert(toContentsOf: fileURL)
    }
}
