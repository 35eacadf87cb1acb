import Foundation
import GrantSystem

/// A document's part in coordination: what others ask it and tell it, handed to the main actor. It outlives no document: what comes then is answered at once.
final class DocumentPresentation: NSObject, NSFilePresenter, @unchecked Sendable {
    // Safe to share: what changes is behind `url`; `document` is set before anybody else knows this, and read by the main actor alone.
    private let url: Lock<URL>
    nonisolated(unsafe) weak var document: UIDocument?
    let presentedItemOperationQueue = OperationQueue()
    /// Of whoever has made the document: what others cause is done in it, too.
    let environment = GrantEnvironment.current

    init(_ url: URL) {
        self.url = Lock(url)
        super.init()
        presentedItemOperationQueue.maxConcurrentOperationCount = 1
    }

    var presentedItemURL: URL? { url.withLock { $0 } }
    func move(to new: URL) { url.withLock { $0 = new } }

    /// Has the document do something on the main actor.
    private func ask(_ work: @escaping @MainActor @Sendable (UIDocument) async -> Void, gone: @escaping @Sendable () -> Void = {}) {
        Task { @MainActor in
            guard let document else { return gone() }
            await GrantEnvironment.$current.withValue(environment) { await work(document) }
        }
    }

    /// What is not saved is saved by `savePresentedItemChanges`, which comes before a reader.
    func relinquishPresentedItem(toReader reader: @escaping @Sendable ((@Sendable () -> Void)?) -> Void) { reader(nil) }

    /// Nothing is changed by the user while somebody writes. Saving waits for the claim by itself.
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

    /// Whoever asks waits for the answer: the file is this program's alone meanwhile, and needs no claim.
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
    /// Saves without a claim, because whoever asked holds one and waits.
    func saveForOthers(_ answer: @escaping @Sendable ((any Error)?) -> Void) async {
        // What is being saved just now waits for the same claim: it cannot end before this is answered.
        guard hasUnsavedChanges, !documentState.contains(.closed), !documentState.contains(.inConflict) else { return answer(nil) }
        do {
            let token = changeCountToken(for: .forOverwriting)
            guard let data = try contents(forType: fileType ?? "") as? Data else { throw CocoaError(.featureUnsupported) }
            let url = fileURL
            if let seen, let now = DocumentVersion(of: url), now != seen {
                documentState.insert(.inConflict)
                return answer(nil)
            }
            let version = try await Task.detached {
                try DocumentFile.write(data, to: url, isNew: false, Progress(totalUnitCount: 1))
                return DocumentVersion(of: url)
            }.value
            (seen, fileModificationDate) = (version, version?.date)
            updateChangeCount(withToken: token, for: .forOverwriting)
            documentState.remove(.savingError)
            answer(nil)
        } catch {
            documentState.insert(.savingError)
            answer(error)
        }
    }

    /// The file is going to be deleted: nothing is saved to it any more, and what is here stays for who saves it elsewhere.
    func wasDeleted() {
        autosaving?.cancel()
        NSFileCoordinator.removeFilePresenter(presentation)
        documentState.insert(.closed)
    }

    func didMove() {
        // A rename over another file, or a copy that took the place, is another version.
        if let now = DocumentVersion(of: fileURL), now != seen { Task { await didChange() } }
        NotificationCenter.default.post(name: UIDocument.stateChangedNotification, object: self)
    }

    /// Others have changed the file, or may have: it is read again, unless something was changed here as well.
    func didChange() async {
        guard !documentState.contains(.closed) else { return }
        await turn()
        endTurn()
        var now = DocumentVersion(of: fileURL)
        // Names in a mount lapse within a second, those of a grant that is back included.
        for _ in 0..<50 where now?.isLinked != true {
            try? await Task.sleep(for: .milliseconds(20))
            now = DocumentVersion(of: fileURL)
        }
        guard let now else { return }
        if now == seen {
            // The grant is back, perhaps: what could not be saved is tried again.
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
