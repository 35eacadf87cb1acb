import Foundation
import GrantKit
import TestSupport
import Testing

@Suite struct ABookmarkOfAURL {
    @Test("finds its directory, and says that it is stale once that was renamed; made anew it is not", arguments: [true, false])
    func renamed(isScoped: Bool) throws {
        let bench = try Bench()
        let url = try bench.granted("docs")
        try bench.program {
            let options: URL.BookmarkCreationOptions = isScoped ? [.withSecurityScope, .minimalBookmark] : .minimalBookmark
            let data = try url.bookmarkData(options: options, includingResourceValuesForKeys: nil, relativeTo: nil)
            #expect(try bench.resolve(data) == (url, false))
            let renamed = url.sibling("papers")
            try url.move(to: renamed)
            let found = try bench.resolve(data)
            #expect(found.url.path == renamed.path && found.isStale)
            let again = try found.url.bookmarkData(options: options)
            #expect(try bench.resolve(again) == (found.url, false))
        }
    }

    @Test("never leads to another directory that has come to the old place", arguments: [true, false])
    func replaced(isScoped: Bool) throws {
        let bench = try Bench()
        let url = try bench.granted("docs")
        try bench.program {
            let data = try url.bookmarkData(options: isScoped ? .withSecurityScope : [])
            try url.remove()
            #expect(bench.failure(data) == .fileNoSuchFile)
            try url.make()
            // A number that is used again at once is told by its birth time.
            #expect(bench.failure(data) == .fileNoSuchFile)
        }
    }

    @Test("with a scope ends with its grant, and is back with it")
    func revoked() throws {
        let bench = try Bench()
        let url = try bench.granted("docs")
        let inside = url.appendingPathComponent("note")
        try bench.program {
            let scoped = try url.bookmarkData(options: .withSecurityScope)
            let scopedFile = try inside.bookmarkData(options: .withSecurityScope)
            let plain = try url.bookmarkData()
            try bench.fixture.grantfs("revoke", "docs").orThrow()
            #expect(bench.failure(scoped) == .fileReadNoPermission)
            #expect(bench.failure(scopedFile) == .fileReadNoPermission)
            // Identity alone asks no grant.
            #expect(try bench.resolve(plain).url == url)
            try bench.fixture.restore("docs")
            #expect(try bench.resolve(scoped) == (url, false))
            #expect(try bench.resolve(scopedFile).url == inside)
            try bench.fixture.grantfs("set", "docs", "--expires", "1s").orThrow()
            try bench.fixture.wait(until: "the grant has expired") { bench.failure(scoped) == .fileReadNoPermission }
            try bench.fixture.grantfs("remove", "docs").orThrow()
            #expect(bench.failure(scoped) == .fileReadNoPermission)
        }
    }

    @Test("with a scope follows what is moved inside the grant, and stops where it leaves it")
    func below() throws {
        let bench = try Bench()
        let url = try bench.granted("docs")
        let deep = url.appendingPathComponent("a/b/c", isDirectory: true)
        try deep.make()
        try Data("deep".utf8).write(to: deep.appendingPathComponent("file"))
        try bench.program {
            let data = try deep.bookmarkData(options: .withSecurityScope)
            let file = try deep.appendingPathComponent("file").bookmarkData(options: .withSecurityScope)
            let moved = url.appendingPathComponent("moved", isDirectory: true)
            try deep.move(to: moved)
            let found = try bench.resolve(data)
            #expect(found.url == moved && found.isStale)
            #expect(try bench.resolve(file).url.text == "deep")
            try moved.move(to: url.sibling("outside"))
            #expect(bench.failure(data) == .fileReadNoPermission)
            #expect(bench.failure(file) == .fileReadNoPermission)
        }
    }

    @Test("of a file finds what was saved over it, and the file itself under another name")
    func file() throws {
        let bench = try Bench()
        let url = try bench.plain("folder").appendingPathComponent("note.txt")
        try bench.program {
            try Data("one".utf8).write(to: url)
            let data = try url.bookmarkData()
            // Saving so makes it another file.
            try Data("two".utf8).write(to: url, options: .atomic)
            #expect(try bench.resolve(data) == (url, false))
            #expect(try bench.resolve(data).url.text == "two")
            let fresh = try url.bookmarkData()
            let renamed = url.sibling("other.txt")
            try url.move(to: renamed)
            let found = try bench.resolve(fresh)
            #expect(found.url == renamed && found.isStale)
            let folder = url.deletingLastPathComponent()
            try folder.move(to: folder.sibling("elsewhere"))
            #expect(try bench.resolve(fresh).url.text == "two")
            try found.url.deletingLastPathComponent().sibling("elsewhere").appendingPathComponent("other.txt").remove()
            #expect(bench.failure(fresh) == .fileNoSuchFile)
        }
    }

    @Test("of a URL with links in it is one of what they lead to")
    func links() throws {
        let bench = try Bench()
        let url = try bench.plain("folder")
        let link = url.sibling("link")
        try FileManager.default.createSymbolicLink(at: URL(fileURLWithPath: link.path), withDestinationURL: url)
        try bench.program {
            let data = try link.bookmarkData()
            try FileManager.default.removeItem(atPath: link.path)
            #expect(try bench.resolve(data) == (url, false))
        }
    }

    @Test("can be kept in a file, which leads where the bookmark leads; what is none is refused")
    func inAFile() throws {
        let bench = try Bench()
        let url = try bench.plain("folder")
        let file = url.sibling("alias")
        try bench.program {
            let data = try url.bookmarkData(options: .suitableForBookmarkFile)
            try URL.writeBookmarkData(data, to: URL(fileURLWithPath: file.path))
            #expect(try URL.bookmarkData(withContentsOf: URL(fileURLWithPath: file.path)) == data)
            #expect(try URL(resolvingAliasFileAt: URL(fileURLWithPath: file.path)) == url)
            let other = url.appendingPathComponent("note")
            try Data("no".utf8).write(to: other)
            #expect(cocoaCode { _ = try URL(resolvingAliasFileAt: other) } == .fileReadCorruptFile)
            #expect(cocoaCode { try URL.writeBookmarkData(Data("no".utf8), to: other) } == .fileReadCorruptFile)
            #expect(throws: CocoaError.self) { try URL(resolvingAliasFileAt: url.appendingPathComponent("none")) }
        }
    }

    @Test("A file's bookmark follows it into another directory of the grant, and up again, with and without a scope")
    func movedFile() throws {
        let bench = try Bench()
        let url = try bench.granted("docs")
        let note = url.appendingPathComponent("note")
        let deeper = url.appendingPathComponent("a/b", isDirectory: true)
        try deeper.make()
        try bench.program {
            for options in [.withSecurityScope, []] as [URL.BookmarkCreationOptions] {
                for (old, new) in [(note, deeper.appendingPathComponent("renamed")), (deeper.appendingPathComponent("renamed"), note)] {
                    let data = try old.bookmarkData(options: options)
                    try old.move(to: new)
                    let found = try bench.resolve(data)
                    #expect(found.url == new && found.isStale)
                }
            }
            // Another file with the same name in another directory is not it.
            let data = try note.bookmarkData(options: .withSecurityScope)
            try note.remove()
            try Data("other".utf8).write(to: deeper.appendingPathComponent("note"))
            #expect(bench.failure(data) == .fileNoSuchFile)
        }
    }

    @Test("is refused with the code that says why")
    func refusals() throws {
        let bench = try Bench()
        let url = try bench.plain("folder")
        let granted = try bench.granted("docs")
        try bench.program {
            #expect(cocoaCode { _ = try url.sibling("none").bookmarkData() } == .fileReadNoSuchFile)
            #expect(cocoaCode { _ = try #require(URL(string: "https://example.org/")).bookmarkData() } == .fileReadUnsupportedScheme)
            #expect(cocoaCode { _ = try url.bookmarkData(options: .withSecurityScope) } == .fileReadNoPermission)
            #expect(cocoaCode { _ = try granted.bookmarkData(options: .withSecurityScope, relativeTo: url) } == .featureUnsupported)
            let reading: URL.BookmarkCreationOptions = [.withSecurityScope, .securityScopeAllowOnlyReadAccess]
            #expect(cocoaCode { _ = try granted.bookmarkData(options: reading) } == .featureUnsupported)
            try bench.fixture.grantfs("set", "docs", "--access", "read-only").orThrow()
            #expect(try bench.resolve(try granted.bookmarkData(options: reading)).url == granted)
            let plain = try url.bookmarkData()
            #expect(cocoaCode { _ = try bench.resolve(plain, options: .withSecurityScope) } == .fileReadCorruptFile)
        }
        bench.programWithoutStore {
            #expect(cocoaCode { _ = try granted.bookmarkData(options: .withSecurityScope) } == .fileReadUnknown)
        }
    }
}
