import Foundation
import GrantSystem
import TestSupport
import Testing

@testable import GrantKit

/// Records its questions and events. It answers immediately unless it is told to be stubborn.
final class Noting: NSObject, NSFilePresenter {
    let events = Events()
    let presentedItemOperationQueue = OperationQueue()
    private let item: Lock<URL>
    let isStubborn: Bool

    init(_ url: URL, isStubborn: Bool = false) {
        item = Lock(url)
        self.isStubborn = isStubborn
        presentedItemOperationQueue.maxConcurrentOperationCount = 1
    }

    var presentedItemURL: URL? { item.withLock { $0 } }

    func relinquishPresentedItem(toReader reader: @escaping @Sendable ((@Sendable () -> Void)?) -> Void) {
        events.add("reader")
        if !isStubborn { reader { [events] in events.add("reader over") } }
    }
    func relinquishPresentedItem(toWriter writer: @escaping @Sendable ((@Sendable () -> Void)?) -> Void) {
        events.add("writer")
        if !isStubborn { writer { [events] in events.add("writer over") } }
    }
    func savePresentedItemChanges(completionHandler: @escaping @Sendable ((any Error)?) -> Void) {
        events.add("save")
        completionHandler(nil)
    }
    func accommodatePresentedItemDeletion(completionHandler: @escaping @Sendable ((any Error)?) -> Void) {
        events.add("delete")
        completionHandler(nil)
    }
    func accommodatePresentedSubitemDeletion(at url: URL, completionHandler: @escaping @Sendable ((any Error)?) -> Void) {
        events.add("delete \(url.lastPathComponent)")
        completionHandler(nil)
    }
    func presentedItemDidMove(to newURL: URL) {
        item.withLock { $0 = newURL }
        events.add("moved to \(newURL.lastPathComponent)")
    }
    func presentedItemDidChange() { events.add("changed") }
    func presentedSubitemDidAppear(at url: URL) { events.add("appeared \(url.lastPathComponent)") }
    func presentedSubitem(at oldURL: URL, didMoveTo newURL: URL) {
        events.add("moved \(oldURL.lastPathComponent) to \(newURL.lastPathComponent)")
    }
    func presentedSubitemDidChange(at url: URL) { events.add("changed \(url.lastPathComponent)") }
    /// Everything that came, and nothing that is still on its way.
    func all() -> [String] {
        presentedItemOperationQueue.waitUntilAllOperationsAreFinished()
        return events.all
    }
}

/// Answers everything twice.
private final class Twice: NSObject, NSFilePresenter {
    let presentedItemURL: URL?
    let presentedItemOperationQueue = OperationQueue()
    init(_ url: URL?) { presentedItemURL = url }

    func relinquishPresentedItem(toWriter writer: @escaping @Sendable ((@Sendable () -> Void)?) -> Void) {
        for _ in 0..<3 { writer(nil) }
    }
}

/// Says nothing of its own: the defaults answer.
private final class Silent: NSObject, NSFilePresenter {
    let presentedItemURL: URL?
    let presentedItemOperationQueue = OperationQueue()
    init(_ url: URL?) { presentedItemURL = url }
}

/// Of an item that no daemon knows, in one program.
@Suite struct AFilePresenter {
    private func presented(isStubborn: Bool = false) throws -> (Bench, folder: URL, note: URL, Noting, Noting) {
        let bench = try Bench()
        let folder = try bench.plain("folder")
        let note = folder.appendingPathComponent("note")
        try Data("one".utf8).write(to: note)
        let (ofNote, ofFolder) = (Noting(note, isStubborn: isStubborn), Noting(folder))
        bench.programWithoutStore { for presenter in [ofNote, ofFolder] { NSFileCoordinator.addFilePresenter(presenter) } }
        return (bench, folder, note, ofNote, ofFolder)
    }

    private func remove(_ presenters: Noting...) { for presenter in presenters { NSFileCoordinator.removeFilePresenter(presenter) } }

    @Test("A presenter is asked before a read or write and told when it is over")
    func asked() throws {
        let (bench, folder, note, ofNote, ofFolder) = try presented()
        defer { remove(ofNote, ofFolder) }
        bench.programWithoutStore {
            NSFileCoordinator().coordinate(readingItemAt: note, error: nil) { _ in
                #expect(ofNote.events.all == ["reader", "save"])
            }
            #expect(ofNote.all() == ["reader", "save", "reader over"])
            NSFileCoordinator().coordinate(readingItemAt: note, options: .withoutChanges, error: nil) { _ in }
            #expect(ofNote.all().suffix(2) == ["reader", "reader over"])
            NSFileCoordinator().coordinate(writingItemAt: note, error: nil) { _ in #expect(ofNote.events.all.last == "writer") }
            #expect(ofNote.all().suffix(3) == ["writer", "writer over", "changed"])
            #expect(ofFolder.all().suffix(3) == ["writer", "writer over", "changed note"])
            NSFileCoordinator().coordinate(writingItemAt: note, options: .forMerging, error: nil) { _ in
                #expect(ofNote.events.all.suffix(2) == ["writer", "save"])
            }
            NSFileCoordinator().coordinate(writingItemAt: folder, options: .forDeleting, error: nil) { _ in
                #expect(ofFolder.events.all.suffix(2) == ["writer", "delete"])
            }
            NSFileCoordinator().coordinate(writingItemAt: note, options: .forDeleting, error: nil) { _ in
                #expect(ofFolder.events.all.suffix(2) == ["writer", "delete note"])
            }
            let count = ofNote.all().count
            NSFileCoordinator().coordinate(writingItemAt: folder.sibling("beside"), error: nil) { _ in }
            #expect(ofNote.all().count == count)
        }
    }

    @Test("A presenter is told the new place of its item")
    func moved() throws {
        let (bench, folder, note, ofNote, ofFolder) = try presented()
        defer { remove(ofNote, ofFolder) }
        let renamed = note.sibling("renamed")
        let elsewhere = folder.sibling("elsewhere")
        bench.programWithoutStore {
            let coordinator = NSFileCoordinator()
            var failure: (any Error)?
            coordinator.coordinate(writingItemAt: note, options: .forMoving, writingItemAt: renamed, options: .forReplacing, error: nil) {
                coordinator.item(at: $0, willMoveTo: $1)
                do { try $0.move(to: $1) } catch { failure = error }
                coordinator.item(at: $0, didMoveTo: $1)
            }
            #expect(failure == nil)
            #expect(ofNote.all().contains("moved to renamed"))
            #expect(ofFolder.all().contains("moved note to renamed"))
            // Its business is the item where it is now.
            NSFileCoordinator().coordinate(writingItemAt: renamed, error: nil) { _ in }
            #expect(ofNote.all().last == "changed")
            coordinator.coordinate(writingItemAt: folder, options: .forMoving, error: nil) { url in
                do { try url.move(to: elsewhere) } catch { failure = error }
                coordinator.item(at: url, didMoveTo: elsewhere)
            }
            #expect(failure == nil)
            _ = (ofNote.all(), ofFolder.all())
            #expect(ofNote.presentedItemURL?.path == elsewhere.path + "/renamed")
            #expect(ofFolder.presentedItemURL?.path == elsewhere.path)
            // Outside an accessor the announcement has no effect.
            coordinator.item(at: elsewhere, didMoveTo: folder)
            #expect(ofFolder.all().last != "moved to folder")
        }
    }

    @Test("A presenter is not asked about its own work or after its removal")
    func own() throws {
        let (bench, _, note, ofNote, ofFolder) = try presented()
        defer { remove(ofNote, ofFolder) }
        try bench.programWithoutStore {
            let own = NSFileCoordinator(filePresenter: ofNote)
            #expect(own.purposeIdentifier == NSFileCoordinator(filePresenter: ofNote).purposeIdentifier)
            #expect(own.purposeIdentifier != NSFileCoordinator(filePresenter: ofFolder).purposeIdentifier)
            own.coordinate(writingItemAt: note, error: nil) { _ in }
            #expect(ofNote.all().isEmpty && ofFolder.all() == ["writer", "writer over", "changed note"])
            remove(ofNote)
            #expect(!NSFileCoordinator.filePresenters.contains { $0 === ofNote })
            #expect(NSFileCoordinator.filePresenters.contains { $0 === ofFolder })
            NSFileCoordinator().coordinate(writingItemAt: note, error: nil) { _ in }
            #expect(ofNote.all().isEmpty)
            var short: Silent? = Silent(note)
            NSFileCoordinator.addFilePresenter(try #require(short))
            short = nil
            NSFileCoordinator().coordinate(writingItemAt: note, error: nil) { _ in }
        }
    }

    @Test("A second answer of a presenter does not count for another presenter")
    func twice() throws {
        let bench = try Bench()
        let note = try bench.plain("folder").appendingPathComponent("note")
        try Data("one".utf8).write(to: note)
        let (twice, stubborn) = (Twice(note), Noting(note, isStubborn: true))
        bench.programWithoutStore(Timeouts(presenter: 1)) {
            for presenter in [twice, stubborn] as [any NSFilePresenter] { NSFileCoordinator.addFilePresenter(presenter) }
            let start = Machine.milliseconds
            NSFileCoordinator().coordinate(writingItemAt: note, error: nil) { _ in }
            #expect(Machine.milliseconds - start >= 900)
            for presenter in [twice, stubborn] as [any NSFilePresenter] { NSFileCoordinator.removeFilePresenter(presenter) }
        }
    }

    @Test("A silent presenter is passed over after its timeout")
    func silent() throws {
        let (bench, _, note, ofNote, ofFolder) = try presented(isStubborn: true)
        defer { remove(ofNote, ofFolder) }
        bench.programWithoutStore(Timeouts(presenter: 1)) {
            let start = Machine.milliseconds
            var isIn = false
            NSFileCoordinator().coordinate(writingItemAt: note, error: nil) { _ in isIn = true }
            #expect(isIn && ofNote.all().first == "writer")
            #expect(Machine.milliseconds - start >= 900)
            remove(ofNote)
        }
        bench.programWithoutStore(.long) {
            let (quiet, nothing) = (Silent(note), Silent(nil))
            for presenter in [quiet, nothing] { NSFileCoordinator.addFilePresenter(presenter) }
            let before = Machine.milliseconds
            for options in [[], .forMerging, .forDeleting] as [NSFileCoordinator.WritingOptions] {
                NSFileCoordinator().coordinate(writingItemAt: note, options: options, error: nil) { _ in }
            }
            #expect(Machine.milliseconds - before < Timeouts.long.presenter * 1000)
            #expect(!NSFileCoordinator.filePresenters.contains { $0 === nothing })
            NSFileCoordinator.removeFilePresenter(quiet)
        }
    }
}
