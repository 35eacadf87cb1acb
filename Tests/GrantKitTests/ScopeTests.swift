import Dispatch
import Foundation
import TestSupport
import Testing

@testable import GrantKit

@Suite struct ASecurityScope {
    private func count(_ url: URL) throws -> Int { ScopeTable.process.count(try FilePath.words(url)) }

    @Test("A scope starts for granted URLs and for no others")
    func starts() throws {
        let bench = try Bench()
        let url = try bench.granted("docs")
        let outside = try bench.plain("folder")
        let web = try #require(URL(string: "https://example.org/"))
        bench.program {
            for granted in [url, url.appendingPathComponent("note"), URL(fileURLWithPath: url.path + "/./../docs//")] {
                #expect(granted.startAccessingSecurityScopedResource())
                granted.stopAccessingSecurityScopedResource()
            }
            for other in [outside, url.deletingLastPathComponent(), url.appendingPathComponent("none"), url.sibling("docs2"), web] {
                #expect(!other.startAccessingSecurityScopedResource())
            }
        }
        // Without a store nothing is granted.
        bench.programWithoutStore { #expect(!url.startAccessingSecurityScopedResource()) }
    }

    @Test("A scope has as many stops as starts, and a surplus stop has no effect")
    func balanced() throws {
        let bench = try Bench()
        let url = try bench.granted("docs")
        try bench.program {
            for _ in 0..<3 { #expect(url.startAccessingSecurityScopedResource()) }
            #expect(try count(url) == 3)
            for left in [2, 1, 0, 0] {
                url.stopAccessingSecurityScopedResource()
                #expect(try count(url) == left)
            }
            #expect(url.startAccessingSecurityScopedResource())
            #expect(try count(url) == 1)
            // A started scope can be stopped when the directory is gone.
            try url.remove()
            url.stopAccessingSecurityScopedResource()
            #expect(try count(url) == 0)
        }
    }

    @Test("A scope does not start while its grant is revoked or expired")
    func revoked() throws {
        let bench = try Bench()
        let url = try bench.granted("docs")
        try bench.program {
            #expect(url.startAccessingSecurityScopedResource())
            try bench.fixture.grantfs("revoke", "docs").orThrow()
            #expect(!url.startAccessingSecurityScopedResource())
            #expect(!url.appendingPathComponent("note").startAccessingSecurityScopedResource())
            url.stopAccessingSecurityScopedResource()
            try bench.fixture.restore("docs")
            #expect(url.startAccessingSecurityScopedResource())
            url.stopAccessingSecurityScopedResource()
            #expect(try count(url) == 0)
        }
    }

    @Test("A scope starts at the new place of a moved directory only")
    func movedAndReplaced() throws {
        let bench = try Bench()
        let url = try bench.granted("docs")
        let moved = url.sibling("papers")
        try bench.program {
            try url.move(to: moved)
            try url.make()
            #expect(!url.startAccessingSecurityScopedResource())
            #expect(moved.startAccessingSecurityScopedResource())
            moved.stopAccessingSecurityScopedResource()
            try moved.remove()
            #expect(!moved.startAccessingSecurityScopedResource())
            #expect(!url.startAccessingSecurityScopedResource())
        }
    }

    @Test("A started scope is included in new bookmarks")
    func implicit() throws {
        let bench = try Bench()
        let url = try bench.granted("docs")
        let note = url.appendingPathComponent("note")
        try bench.program {
            #expect(url.startAccessingSecurityScopedResource())
            let implicit = try [url, note].map { try $0.bookmarkData(options: .minimalBookmark) }
            let refused = try url.bookmarkData(options: .withoutImplicitSecurityScope)
            url.stopAccessingSecurityScopedResource()
            let plain = try url.bookmarkData(options: .minimalBookmark)
            try bench.fixture.grantfs("revoke", "docs").orThrow()
            for data in implicit { #expect(bench.failure(data) == .fileReadNoPermission) }
            for data in [refused, plain] { #expect(bench.failure(data) == nil) }
        }
    }

    @Test("A scope revoked after its start gives no bookmark by identity")
    func revokedBeforeTheBookmark() throws {
        let bench = try Bench()
        let url = try bench.granted("docs")
        try bench.program {
            #expect(url.startAccessingSecurityScopedResource())
            defer { url.stopAccessingSecurityScopedResource() }
            try bench.fixture.grantfs("revoke", "docs").orThrow()
            #expect(cocoaCode { _ = try url.bookmarkData() } == .fileReadNoPermission)
        }
    }

    @Test("Concurrent starts and stops of a scope are counted exactly")
    func threads() throws {
        let bench = try Bench()
        let url = try bench.granted("docs")
        let environment = GrantEnvironment(store: bench.fixture.store)
        DispatchQueue.concurrentPerform(iterations: 8) { _ in
            GrantEnvironment.$current.withValue(environment) {
                for _ in 0..<5 {
                    let started = url.startAccessingSecurityScopedResource()
                    #expect(started)
                    if started { url.stopAccessingSecurityScopedResource() }
                }
            }
        }
        #expect(try count(url) == 0)
    }
}

@Suite struct AStoreThatAProgramHasOpen {
    @Test("Scopes and bookmarks notice that the store's directory was moved or replaced")
    func exchanged() throws {
        let bench = try Bench()
        let url = try bench.granted("docs")
        try bench.program {
            #expect(url.startAccessingSecurityScopedResource())
            url.stopAccessingSecurityScopedResource()
            let data = try url.bookmarkData(options: .withSecurityScope)
            let away = bench.fixture.store + "-away"
            try FileManager.default.moveItem(atPath: bench.fixture.store, toPath: away)
            #expect(!url.startAccessingSecurityScopedResource())
            // It says nothing about the directory.
            #expect(bench.failure(data) == .fileReadUnknown)
            // A new store that grants the same directory is not the old one.
            try bench.fixture.grantfs("grant", url.path).orThrow()
            #expect(url.startAccessingSecurityScopedResource())
            url.stopAccessingSecurityScopedResource()
            #expect(bench.failure(data) == .fileReadCorruptFile)
            try FileManager.default.removeItem(atPath: bench.fixture.store)
            try FileManager.default.moveItem(atPath: away, toPath: bench.fixture.store)
            #expect(bench.failure(data) == nil)
        }
    }
}
