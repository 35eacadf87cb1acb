import Foundation
import TestSupport
import Testing

@testable import GrantKit

/// Documents that are directories, in a browser: with a mount, and without one.
@Suite @MainActor struct DirectoryDocumentTests {
    /// A browser of a granted directory that has a document `notes.bundle` of two files, one of them in a directory of its own.
    private func browsing(
        isMounted: Bool, extensions: Set<String>? = ["bundle"], _ body: @MainActor (DocumentBrowser, _ host: URL) async throws -> Void
    ) async throws {
        let bench = try Bench()
        let host = try bench.plain("docs")
        try host.appendingPathComponent("notes.bundle/deep").make()
        try Data("one".utf8).write(to: host.appendingPathComponent("notes.bundle/a"))
        try Data("three".utf8).write(to: host.appendingPathComponent("notes.bundle/deep/b.bundle"))
        try host.appendingPathComponent("plain").make()
        try Data("alone".utf8).write(to: host.appendingPathComponent("plain/file.bundle"))
        try await bench.browsing(host, extensions: extensions, isMounted: isMounted) { try await body($0, host) }
    }

    @Test("A directory that is a document is listed once, with the size of its files", arguments: Bench.waysToBrowse)
    func listed(isMounted: Bool) async throws {
        try await browsing(isMounted: isMounted) { browser, _ in
            #expect(browser.items.map(\.name) == ["notes.bundle", "plain/file.bundle"])
            #expect(browser.items.map(\.size) == [8, 5] && browser.items[0].url.hasDirectoryPath)
        }
    }

    @Test("A browser without extensions lists files and no directory", arguments: Bench.waysToBrowse)
    func files(isMounted: Bool) async throws {
        try await browsing(isMounted: isMounted, extensions: nil) { browser, _ in
            #expect(browser.items.map(\.name) == ["notes.bundle/a", "notes.bundle/deep/b.bundle", "plain/file.bundle"])
        }
    }

    @Test("A directory that is a document is edited, renamed and deleted as one", arguments: Bench.waysToBrowse)
    func edited(isMounted: Bool) async throws {
        try await browsing(isMounted: isMounted) { browser, host in
            try host.appendingPathComponent("notes.bundle/deep").remove()
            let document = AUIDocument.Bundle(fileURL: browser.items[0].url)
            #expect(await document.open() && document.parts == ["a": "one"])
            document.parts["c"] = "more"
            document.updateChangeCount(.done)
            #expect(await document.autosave())
            try await soon("its new size is listed") { browser.items.first?.size == 7 }
            #expect(browser.items.map(\.name) == ["notes.bundle", "plain/file.bundle"])

            try await browser.rename(browser.items[0], to: "other.bundle")
            try await soon("it follows") { document.fileURL.lastPathComponent == "other.bundle" }
            try await soon("its new name is listed") { browser.items.first?.name == "other.bundle" }
            document.parts = ["d": "last"]
            document.updateChangeCount(.done)
            #expect(await document.autosave())
            #expect(try FileManager.default.contentsOfDirectory(atPath: host.appendingPathComponent("other.bundle").path) == ["d"])

            try await browser.delete(browser.items[0])
            try await soon("it is closed") { document.documentState.contains(.closed) }
            try await soon("it is no longer listed") { browser.items.map(\.name) == ["plain/file.bundle"] }
            #expect(document.parts == ["d": "last"])
        }
    }

    @Test("A directory that is a document is imported as one, and keeps its parts", arguments: Bench.waysToBrowse)
    func imported(isMounted: Bool) async throws {
        try await browsing(isMounted: isMounted) { browser, host in
            let outside = host.sibling("elsewhere").appendingPathComponent("notes.bundle", isDirectory: true)
            try outside.make()
            try Data("theirs".utf8).write(to: outside.appendingPathComponent("x"))
            let place = try await browser.importDocument(at: outside, nextToDocumentAt: browser.items[0].url, mode: .move)
            #expect(place.lastPathComponent == "notes 2.bundle")
            #expect(host.appendingPathComponent("notes 2.bundle/x").text == "theirs")
            #expect(!FileManager.default.fileExists(atPath: outside.path))
            try await soon("it is listed") { browser.items.map(\.name) == ["notes 2.bundle", "notes.bundle", "plain/file.bundle"] }
        }
    }

    @Test("The document is revealed to which a part belongs", arguments: Bench.waysToBrowse)
    func revealed(isMounted: Bool) async throws {
        try await browsing(isMounted: isMounted) { browser, host in
            browser.filter = "plain"
            let part = host.appendingPathComponent("notes.bundle/deep/b.bundle")
            let shown = try await browser.revealDocument(at: part, importIfNeeded: false)
            #expect(shown == browser.items.first?.url && browser.items.count == 2)
        }
    }

    @Test("A browser that was stopped and started again follows changes")
    func startedAgain() async throws {
        try await browsing(isMounted: false) { browser, host in
            // A listing is due when the browser stops.
            try await browser.rename(browser.items[0], to: "first.bundle")
            browser.stop()
            await browser.start()
            #expect(browser.items.map(\.name) == ["first.bundle", "plain/file.bundle"])
            try await browser.rename(browser.items[0], to: "latest.bundle")
            try await soon("it is listed") { browser.items.first?.name == "latest.bundle" }
        }
    }
}
