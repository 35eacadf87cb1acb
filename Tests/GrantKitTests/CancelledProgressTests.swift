import Foundation
import GrantCoordinator
import Synchronization
import TestSupport
import Testing

@testable import GrantKit

/// A person cancels what takes long: a read, a save, an import.
@Suite @MainActor struct CancelledProgressTests {
    /// Calls a function when it has been told where to write, and has written nothing.
    private final class Text: UIDocument {
        var text = ""
        var errors: [CocoaError.Code] = []
        let whenWriting = Mutex<(@Sendable () -> Void)?>(nil)
        override func contents(forType typeName: String) throws -> Any { Data(text.utf8) }
        override func load(fromContents contents: Any, ofType typeName: String?) throws {
            text = String(decoding: contents as? Data ?? Data(), as: UTF8.self)
        }
        override func handleError(_ error: any Error, userInteractionPermitted: Bool) {
            errors.append((error as? CocoaError)?.code ?? .featureUnsupported)
        }
        nonisolated override func writeContents(
            _ contents: Any, to url: URL, for saveOperation: SaveOperation, originalContentsURL: URL?
        ) throws {
            whenWriting.withLock { $0 }?()
            try super.writeContents(contents, to: url, for: saveOperation, originalContentsURL: originalContentsURL)
        }
    }

    /// Work that a test does not wait for. If it never ends, the test fails and does not hang.
    @MainActor private final class Work {
        var succeeded: Bool?
        init(_ body: @escaping @MainActor () async -> Bool) { Task { succeeded = await body() } }

        func fails() async throws {
            try await soon("it ends") { succeeded != nil }
            #expect(succeeded == false)
        }
    }

    private let bench: Bench
    private let directory: URL
    private let file: URL

    init() throws {
        bench = try Bench()
        directory = try bench.plain("documents")
        file = directory.appendingPathComponent("text.txt")
        try Data("here".utf8).write(to: file)
    }

    /// Runs `body` while another part of the program writes the item.
    private func whileClaimed(_ item: URL, _ body: () async throws -> Void) async throws {
        let (crew, goOn) = (Crew(), DispatchSemaphore(value: 0))
        defer { crew.finish() }
        defer { goOn.signal() }
        try crew.write(item, as: "writer") { _ in goOn.wait() }
        try await soon("the item is claimed") { crew.events.all == ["writer in"] }
        try await body()
        #expect(crew.events.all == ["writer in"])
    }

    private func waits(for item: URL) async throws {
        let claimed = try ClaimedItem(path: FilePath.words(item))
        try await soon("it waits") { LocalClaims.process.waiting(for: claimed) > 0 }
    }

    @Test("Cancelling the progress of an opening document ends its wait for a writer")
    func opening() async throws {
        let document = Text(fileURL: file)
        try await whileClaimed(file) {
            let opening = Work { await document.open() }
            try await waits(for: file)
            try #require(document.progress).cancel()
            try await opening.fails()
        }
        #expect(document.errors == [.userCancelled] && document.documentState == .closed && document.progress == nil)
        #expect(await document.open() && document.text == "here")
        #expect(await document.close())
    }

    @Test("Cancelling the progress of a save ends its wait, and keeps the changes")
    func waitingSave() async throws {
        let document = Text(fileURL: file)
        #expect(await document.open())
        try await whileClaimed(file) {
            document.text = "mine"
            document.updateChangeCount(.done)
            let saving = Work { await document.save(to: file, for: .forOverwriting) }
            try await waits(for: file)
            try #require(document.progress).cancel()
            try await saving.fails()
        }
        #expect(document.errors == [.userCancelled] && document.hasUnsavedChanges && file.text == "here")
        #expect(await document.close() && file.text == "mine")
    }

    @Test("Cancelling the progress of a read stops it before the end of the file")
    func reading() async throws {
        let pipe = directory.appendingPathComponent("endless")
        #expect(mkfifo(pipe.path, 0o600) == 0)
        let document = Text(fileURL: pipe)
        let opening = Work { await document.open() }
        // It does not block once the document reads, whose end of the file comes when both ends are closed.
        var writing: Int32 = -1
        try await soon("it reads") {
            writing = Glibc.open(pipe.path, O_WRONLY | O_NONBLOCK | O_CLOEXEC)
            return writing >= 0
        }
        defer { Glibc.close(writing) }
        #expect(write(writing, "one", 3) == 3)
        try await soon("it has read a portion") { document.progress?.completedUnitCount == 1 }
        document.progress?.cancel()
        #expect(write(writing, "two", 3) == 3)
        try await opening.fails()
        #expect(document.errors == [.userCancelled] && document.documentState == .closed && document.text == "")
    }

    @Test("Cancelling the progress of a copy leaves the file, and keeps the changes")
    func saving() async throws {
        let document = Text(fileURL: file)
        #expect(await document.open())
        let (begun, goOn) = (Events(), DispatchSemaphore(value: 0))
        document.whenWriting.withLock {
            $0 = {
                begun.add("writes")
                goOn.wait()
            }
        }
        document.text = "mine"
        document.updateChangeCount(.done)
        let saving = Work { await document.save(to: file, for: .forOverwriting) }
        try await soon("it writes") { begun.all == ["writes"] }
        try #require(document.progress).cancel()
        goOn.signal()
        try await saving.fails()
        #expect(document.errors == [.userCancelled] && document.hasUnsavedChanges && file.text == "here")
        #expect(try FileManager.default.contentsOfDirectory(atPath: directory.path) == ["text.txt"])
        document.whenWriting.withLock { $0 = nil }
        #expect(await document.close() && file.text == "mine")
    }

    @Test("An import that waits for a writer ends with its task, and imports nothing", arguments: Bench.waysToBrowse)
    func importing(isMounted: Bool) async throws {
        let granted = try bench.plain("granted")
        try await bench.browsing(granted, isMounted: isMounted) { browser in
            try await whileClaimed(file) {
                let (file, place) = (file, browser.directories[0].url)
                let task = Task { try await browser.importDocument(at: file, nextToDocumentAt: place, mode: .copy) }
                try await waits(for: file)
                task.cancel()
                let importing = Work {
                    let error = await #expect(throws: CocoaError.self) { try await task.value }
                    return error?.code != .userCancelled
                }
                try await importing.fails()
            }
            #expect(try FileManager.default.contentsOfDirectory(atPath: granted.path).isEmpty && file.text == "here")
        }
    }
}
