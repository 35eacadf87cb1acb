import Foundation
import Synchronization
import TestSupport
import Testing

@testable import GrantKit

/// A document in one process: nothing is mounted.
@Suite(.serialized) @MainActor struct AUIDocument {
    final class Text: UIDocument {
        var text = ""
        var errors: [CocoaError.Code] = []
        override func contents(forType typeName: String) throws -> Any { Data(text.utf8) }
        override func load(fromContents contents: Any, ofType typeName: String?) throws {
            text = String(decoding: contents as? Data ?? Data(), as: UTF8.self)
        }
        override func handleError(_ error: any Error, userInteractionPermitted: Bool) {
            errors.append((error as? CocoaError)?.code ?? .featureUnsupported)
        }
        override var autosaveDelay: Duration { .milliseconds(50) }
        func type(_ more: String) {
            text += more
            updateChangeCount(.done)
        }
    }

    private let bench: Bench
    private let file: URL

    init() throws {
        bench = try Bench()
        file = try bench.plain("documents").appendingPathComponent("text.txt")
        try Data("here".utf8).write(to: file)
    }

    private func check(_ isSo: Bool, sourceLocation: SourceLocation = #_sourceLocation) { #expect(isSo, sourceLocation: sourceLocation) }

    private func eventually(_ what: String, _ condition: () -> Bool) async throws {
        let deadline = ContinuousClock.now + .seconds(60)
        while !condition() {
            if ContinuousClock.now > deadline { throw TestFailure("not within a minute: \(what)") }
            try await Task.sleep(for: .milliseconds(2))
        }
    }

    @Test("opens, is closed before and afterwards, tells each change of its state, and names what it is")
    func life() async throws {
        let document = Text(fileURL: file)
        let states = Mutex<[UInt]>([])
        let observer = NotificationCenter.default.addObserver(forName: UIDocument.stateChangedNotification, object: document, queue: nil) {
            _ in
            MainActor.assumeIsolated { states.withLock { $0.append(document.documentState.rawValue) } }
        }
        defer { NotificationCenter.default.removeObserver(observer) }
        #expect(document.documentState == .closed && document.localizedName == "text" && document.fileType == "txt")
        check(await document.open() && document.text == "here" && document.documentState == .normal)
        #expect(document.fileModificationDate != nil && document.progress == nil)
        check(await document.close() && document.documentState == .closed)
        #expect(states.withLock { $0 } == [17, 16, 0, 1], "progress while it is read; open; closed")
        check(await document.close())
    }

    @Test("saves what was changed, all of it or nothing, keeps permissions and leaves nothing beside it")
    func saves() async throws {
        let document = Text(fileURL: file)
        _ = await document.open()
        chmod(file.path, 0o640)
        let inode = try FileManager.default.attributesOfItem(atPath: file.path)[.systemFileNumber] as? UInt64
        document.type(" and there")
        #expect(document.hasUnsavedChanges)
        try await eventually("it is saved by itself") { !document.hasUnsavedChanges }
        #expect(file.text == "here and there")
        let attributes = try FileManager.default.attributesOfItem(atPath: file.path)
        #expect(attributes[.posixPermissions] as? Int == 0o640 && attributes[.systemFileNumber] as? UInt64 != inode)
        #expect(try FileManager.default.contentsOfDirectory(atPath: file.deletingLastPathComponent().path) == ["text.txt"])
        check(await document.close())
    }

    @Test("is made where there is none, and nowhere else; is another file once it was saved as that")
    func creates() async throws {
        let other = file.deletingLastPathComponent().appendingPathComponent("other.md")
        let document = Text(fileURL: other)
        document.text = "new"
        check(await !document.save(to: file, for: .forCreating) && document.errors == [.fileWriteFileExists] && file.text == "here")
        check(await document.save(to: other, for: .forCreating) && other.text == "new" && document.documentState == .normal)
        let third = file.deletingLastPathComponent().appendingPathComponent("third.md")
        check(await document.save(to: third, for: .forOverwriting) && document.fileURL == third && document.localizedName == "third")
        check(await document.close())
    }

    @Test("is saved before somebody reads, and read again after somebody has written")
    func others() async throws {
        let document = Text(fileURL: file)
        _ = await document.open()
        document.autosaving?.cancel()
        document.text = "unsaved"
        document.changes += 1
        let read = try await CoordinatedFiles.read(file) { try String(contentsOf: $0, encoding: .utf8) }.get()
        #expect(read == "unsaved" && !document.hasUnsavedChanges)
        try await CoordinatedFiles.write(file) { try Data("theirs".utf8).write(to: $0) }.get()
        try await eventually("it is read again") { document.text == "theirs" }
        check(await document.close())
    }

    @Test(
        "is in conflict when it was changed by somebody else and here: nothing is overwritten until somebody decides",
        arguments: [true, false])
    func conflict(mineWins: Bool) async throws {
        let document = Text(fileURL: file)
        _ = await document.open()
        // By somebody who coordinates with nobody.
        try Data("theirs, longer".utf8).write(to: file)
        document.type(" mine")
        try await eventually("it is in conflict") { document.documentState.contains(.inConflict) }
        #expect(file.text == "theirs, longer" && document.text == "here mine")
        check(await !document.autosave())
        check(await !document.close())
        #expect(file.text == "theirs, longer")
        if mineWins {
            check(await document.save(to: file, for: .forOverwriting) && file.text == "here mine")
        } else {
            check(await document.revert(toContentsOf: file) && document.text == "theirs, longer" && !document.hasUnsavedChanges)
        }
        #expect(document.documentState == .normal)
        check(await document.close())
    }

    @Test("goes where it is moved, and saves there; is closed when it is deleted, with its text")
    func moved() async throws {
        let document = Text(fileURL: file)
        _ = await document.open()
        let new = file.deletingLastPathComponent().appendingPathComponent("moved.txt")
        let coordinator = NSFileCoordinator()
        coordinator.coordinate(writingItemAt: file, options: .forMoving, writingItemAt: new, error: nil) { from, to in
            try? FileManager.default.moveItem(at: from, to: to)
            coordinator.item(at: from, didMoveTo: to)
        }
        try await eventually("it knows where it is") { document.fileURL.lastPathComponent == "moved.txt" }
        document.type("!")
        try await eventually("it is saved there") { new.text == "here!" }
        #expect(file.text == nil)
        try await CoordinatedFiles.write(new, options: .forDeleting) { try FileManager.default.removeItem(at: $0) }.get()
        try await eventually("it is closed") { document.documentState.contains(.closed) }
        #expect(document.text == "here!" && new.text == nil)
    }

    @Test("says why it cannot be read or saved, and keeps its changes")
    func fails() async throws {
        let missing = Text(fileURL: file.deletingLastPathComponent().appendingPathComponent("missing"))
        check(await !missing.open() && missing.errors == [.fileReadNoSuchFile] && missing.documentState.contains(.closed))
        let document = Text(fileURL: file)
        _ = await document.open()
        let directory = file.deletingLastPathComponent()
        try directory.move(to: directory.sibling("away"))
        document.type("kept")
        try await eventually("it could not be saved") { document.documentState.contains(.savingError) }
        #expect(document.hasUnsavedChanges && document.errors == [.fileNoSuchFile])
        try directory.sibling("away").move(to: directory)
        check(await document.close() && file.text == "herekept")
    }

    @Test("is written in place where nothing can be made beside it", .enabled(if: Machine.hasFUSE, Comment(rawValue: Machine.noFUSE)))
    func inPlace() async throws {
        try bench.fixture.grantfs("grant", file.path, "--name", "note").orThrow()
        let shown = URL(fileURLWithPath: try bench.fixture.mount() + "/note")
        try await withEnvironment {
            let document = Text(fileURL: shown)
            check(await document.open() && document.text == "here")
            document.text = "x"
            check(await document.save(to: shown, for: .forOverwriting) && file.text == "x")
            check(await document.close())
        }
    }

    private func withEnvironment(_ body: @MainActor () async throws -> Void) async throws {
        var environment = GrantEnvironment(store: bench.fixture.store)
        environment.timeouts = .long
        try await GrantEnvironment.$current.withValue(environment) { try await body() }
    }
}
