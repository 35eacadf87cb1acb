import Foundation
import GrantKit
import Synchronization

/// A document that is open in the editor.
///
/// It cooperates with other programs that coordinate. It writes unsaved text before another program
/// reads. It writes nothing while another program writes, and then reads the new contents.
final class Note: NSObject, NSFilePresenter, Sendable {
    private struct State {
        var url: URL
        var text = ""
        /// Whether there is text that is not in the file.
        var isDirty = false
        /// Waits, or has the file.
        var coordinator: NSFileCoordinator?
    }

    let presentedItemOperationQueue = OperationQueue()
    private let state: Mutex<State>
    private let report: @Sendable (String) -> Void

    /// `report` receives descriptions of the note's events, on any thread.
    init(_ url: URL, report: @escaping @Sendable (String) -> Void) {
        state = Mutex(State(url: url))
        self.report = report
        super.init()
        presentedItemOperationQueue.maxConcurrentOperationCount = 1
    }

    var presentedItemURL: URL? { state.withLock { $0.url } }
    var text: String { state.withLock { $0.text } }

    // MARK: User actions

    /// Reads the note and begins to present it under one claim, so that no change is missed.
    func open(_ done: @escaping @Sendable ((any Error)?) -> Void) {
        access(.readingIntent(with: state.withLock { $0.url }), done) { note, url in
            try note.load(url)
            NSFileCoordinator.addFilePresenter(note)
        }
    }

    /// Makes a new note, which must not exist.
    func create(_ done: @escaping @Sendable ((any Error)?) -> Void) {
        access(.writingIntent(with: state.withLock { $0.url }), done) { note, url in
            try Data().write(to: url, options: .withoutOverwriting)
            NSFileCoordinator.addFilePresenter(note)
        }
    }

    func type(_ more: String) {
        state.withLock { state in
            state.text += more
            state.isDirty = true
        }
    }

    /// Replaces the file's contents by the text: all of it, or nothing.
    func save(_ done: @escaping @Sendable ((any Error)?) -> Void) {
        access(.writingIntent(with: state.withLock { $0.url }, options: .forReplacing), done) { note, url in try note.write(to: url) }
    }

    /// Ends the wait for other programs.
    func cancel() { state.withLock { $0.coordinator }?.cancel() }

    func close() { NSFileCoordinator.removeFilePresenter(self) }

    /// Waits for the claim outside the queue, which stays free to answer other programs, and does
    /// the work on the queue.
    private func access(
        _ intent: NSFileAccessIntent, _ done: @escaping @Sendable ((any Error)?) -> Void,
        _ work: @escaping @Sendable (Note, URL) throws -> Void
    ) {
        let coordinator = NSFileCoordinator(filePresenter: self)
        state.withLock { $0.coordinator = coordinator }
        coordinator.coordinate(with: [intent], queue: presentedItemOperationQueue) { [self] error in
            do {
                if let error { throw error }
                try work(self, intent.url)
                // After the claim, which ends in this operation: until then other programs may not know the note yet.
                presentedItemOperationQueue.addOperation { done(nil) }
            } catch {
                done(error)
            }
        }
    }

    private func load(_ url: URL) throws {
        let text = try String(contentsOf: url, encoding: .utf8)
        state.withLock { state in
            state.text = text
            state.isDirty = false
        }
    }

    private func write(to url: URL) throws {
        let (text, isDirty) = state.withLock { ($0.text, $0.isDirty) }
        guard isDirty else { return }
        try Data(text.utf8).write(to: url, options: .atomic)
        // Text that was typed meanwhile must still be written.
        state.withLock { $0.isDirty = $0.text != text }
    }

    // MARK: Requests and notices of other programs

    func relinquishPresentedItem(toReader reader: @escaping @Sendable ((@Sendable () -> Void)?) -> Void) {
        report("somebody reads")
        reader(nil)
    }

    func relinquishPresentedItem(toWriter writer: @escaping @Sendable ((@Sendable () -> Void)?) -> Void) {
        report("somebody writes")
        writer { [self] in report("the writer has ended") }
    }

    func savePresentedItemChanges(completionHandler: @escaping @Sendable ((any Error)?) -> Void) {
        do {
            // The asking program waits for the reply. The file is this program's alone, and needs
            // no claim.
            try write(to: state.withLock { $0.url })
            report("saved on request")
            completionHandler(nil)
        } catch {
            completionHandler(error)
        }
    }

    func accommodatePresentedItemDeletion(completionHandler: @escaping @Sendable ((any Error)?) -> Void) {
        report("deleted")
        completionHandler(nil)
    }

    func presentedItemDidMove(to newURL: URL) {
        state.withLock { $0.url = newURL }
        report("moved to \(newURL.lastPathComponent)")
    }

    func presentedItemDidChange() {
        let (url, isDirty) = state.withLock { ($0.url, $0.isDirty) }
        if isDirty { return report("changed by another program, and here") }
        access(
            .readingIntent(with: url, options: .withoutChanges), { [self] error in report(error == nil ? "read again" : "cannot be read") }
        ) {
            try $0.load($1)
        }
    }
}
