import Foundation
import GrantSystem
import TestSupport
import Testing

@testable import GrantKit

/// Changes by programs that do not coordinate, such as a shell.
@Suite struct PlainChangesTests {
    private final class Text: UIDocument {
        var text = ""
        override func contents(forType typeName: String) throws -> Any { Data(text.utf8) }
        override func load(fromContents contents: Any, ofType typeName: String?) throws {
            text = String(decoding: contents as? Data ?? Data(), as: UTF8.self)
        }
    }

    @MainActor private func soon(_ what: String, _ condition: @MainActor () -> Bool) async throws {
        let deadline = ContinuousClock.now + .seconds(60)
        while !condition() {
            if ContinuousClock.now > deadline { throw TestFailure("not within a minute: \(what)") }
            try await Task.sleep(for: .milliseconds(5))
        }
    }

    private func presenting(_ presenter: Noting, _ body: () throws -> Void) throws {
        NSFileCoordinator.addFilePresenter(presenter)
        PresenterRegistry.process.settle(within: Timeouts.long.presenter)
        defer { NSFileCoordinator.removeFilePresenter(presenter) }
        try body()
    }

    @Test("A presenter is told about uncoordinated changes of its item")
    func presenters() throws {
        let bench = try Bench()
        let folder = try bench.plain("folder")
        let note = folder.appendingPathComponent("note")
        try Data("one".utf8).write(to: note)
        let (ofNote, ofFolder) = (Noting(note), Noting(folder))
        try bench.programWithoutStore {
            try presenting(ofNote) {
                try presenting(ofFolder) {
                    try Data("two".utf8).write(to: note)
                    try ofNote.events.wait(for: "changed")
                    try ofFolder.events.wait(for: "changed note")
                    try folder.appendingPathComponent("below").make()
                    try ofFolder.events.wait(for: "appeared below")
                    // A directory is watched soon after it has appeared.
                    try eventually("what is below it is heard of") {
                        try? Data("new".utf8).write(to: folder.appendingPathComponent("below/new"))
                        return ofFolder.events.all.contains { $0.hasSuffix(" new") }
                    }
                    #expect(!ofNote.events.all.contains { $0.hasPrefix("appeared") })
                }
            }
        }
    }

    @Test("A presenter is not told about its own work as a foreign change")
    func own() throws {
        let bench = try Bench()
        let note = try bench.plain("folder").appendingPathComponent("note")
        try Data("one".utf8).write(to: note)
        let presenter = Noting(note)
        try bench.programWithoutStore {
            try presenting(presenter) {
                // So many that news of the first would be told before the last, and that some are read while a writer ends.
                for number in 0..<1000 {
                    NSFileCoordinator(filePresenter: presenter).coordinate(writingItemAt: note, error: nil) {
                        try? Data("\(number)".utf8).write(to: $0, options: .atomic)
                    }
                }
                // News of a later change would come after news of an earlier one.
                try Data("theirs".utf8).write(to: note)
                try presenter.events.wait(for: "changed")
                #expect(presenter.all().filter { $0 == "changed" }.count == 1)
            }
        }
    }

    @Test("A document reloads and a browser relists after a change in the mount", .enabled(if: Machine.hasFUSE))
    @MainActor func inMount() async throws {
        let bench = try Bench()
        _ = try bench.granted("docs")
        let mounted = URL(fileURLWithPath: try bench.fixture.mount() + "/docs", isDirectory: true)
        var environment = GrantEnvironment(store: bench.fixture.store)
        environment.timeouts = .long
        try await GrantEnvironment.$current.withValue(environment) {
            let browser = DocumentBrowser([try GrantedDirectory(containing: mounted)])
            await browser.start()
            let document = Text(fileURL: mounted.appendingPathComponent("note"))
            #expect(await document.open() && document.text == "here")
            PresenterRegistry.process.settle(within: Timeouts.long.presenter)
            try Data("theirs".utf8).write(to: document.fileURL)
            try await soon("the document is read again") { document.text == "theirs" }
            try Data().write(to: mounted.appendingPathComponent("more"))
            try await soon("the browser lists it") { browser.items.map(\.name) == ["more", "note"] }
            browser.stop()
            #expect(await document.close())
        }
    }
}
