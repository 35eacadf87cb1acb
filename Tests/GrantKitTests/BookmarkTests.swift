import Foundation
import GrantKit
import TestSupport
import Testing

@Suite struct ABookmarkOfAURL {
    @Test("A bookmark finds its renamed directory and is stale", arguments: [true, false])
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

    @Test("A bookmark never leads to another directory at the old place", arguments: [true, false])
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

    @Test("A bookmark with a scope fails while its grant is revoked")
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

    @Test("A bookmark with a scope follows moves inside the grant only")
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

    @Test("A bookmark of a file finds a saved replacement and a renamed file")
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

    @Test("A bookmark of a URL with links resolves to the target of the links")
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

    @Test("A bookmark file leads to the same place as its bookmark")
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

    @Test("A bookmark of a file follows it into other directories of the grant")
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

    @Test("A failure to make a bookmark has the Cocoa code of its cause")
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

    @Test("A bookmark keeps its resource values over the deletion of the item")
    func resourceValues() throws {
        let bench = try Bench()
        let note = try bench.granted("docs").appendingPathComponent("note")
        try bench.program {
            let keys: Set<URLResourceKey> = [.nameKey, .fileSizeKey, .linkCountKey, .isRegularFileKey, .contentModificationDateKey]
            let now = try note.resourceValues(forKeys: keys)
            let plain = try note.bookmarkData()
            for options in [[], .withSecurityScope] as [URL.BookmarkCreationOptions] {
                let data = try note.bookmarkData(options: options, includingResourceValuesForKeys: keys)
                #expect(try bench.resolve(data).url == note)
                for count in 0..<data.count { #expect(bench.failure(data.prefix(count)) == .fileReadCorruptFile) }
                let kept = try #require(URL.resourceValues(forKeys: keys.union([.creationDateKey]), fromBookmarkData: data))
                #expect(kept.name == "note" && kept.fileSize == 4 && kept.linkCount == 1 && kept.isRegularFile == true)
                #expect(kept.contentModificationDate == now.contentModificationDate && kept.creationDate == nil)
                #expect(kept.allValues.count == 5)
                let old = try #require(NSURL.resourceValues(forKeys: [.fileSizeKey, .linkCountKey], fromBookmarkData: data))
                #expect(old[.fileSizeKey] as? Int == 4 && old[.linkCountKey] as? Int == 1)
                if options != [] {
                    // The seal covers them.
                    var changed = data
                    let place = try #require(changed.firstRange(of: Data("NSURLFileSizeKey".utf8))?.upperBound)
                    changed[place + 8] ^= 1
                    #expect(bench.failure(changed) == .fileReadCorruptFile)
                }
            }
            try note.remove()
            let all = try #require(
                URL.resourceValues(forKeys: [.nameKey, .pathKey, .isDirectoryKey, .fileSizeKey], fromBookmarkData: plain))
            #expect(all.name == "note" && all.path == note.path && all.isDirectory == false && all.fileSize == nil)
            #expect(URL.resourceValues(forKeys: keys, fromBookmarkData: Data("no".utf8)) == nil)
        }
    }

    @Test("The forms of NSURL do what those of URL do")
    func olderForms() throws {
        let bench = try Bench()
        let url = try bench.granted("docs")
        try bench.program {
            let old = NSURL(fileURLWithPath: url.path, isDirectory: true)
            #expect(old.startAccessingSecurityScopedResource())
            old.stopAccessingSecurityScopedResource()
            let data = try old.bookmarkData(options: .withSecurityScope, includingResourceValuesForKeys: [.nameKey], relativeTo: nil)
            let moved = url.sibling("moved")
            try url.move(to: moved)
            var isStale: ObjCBool = false
            let found = try NSURL(resolvingBookmarkData: data, options: [], relativeTo: nil, bookmarkDataIsStale: &isStale)
            #expect(found.path == moved.path && isStale.boolValue)
            let file = moved.appendingPathComponent("alias")
            try NSURL.writeBookmarkData(data, to: file)
            #expect(try NSURL.bookmarkData(withContentsOf: file) == data)
            #expect(try NSURL(resolvingAliasFileAt: file).path == moved.path)
            #expect(cocoaCode { _ = try NSURL(resolvingBookmarkData: Data(), bookmarkDataIsStale: nil) } == .fileReadCorruptFile)
        }
    }
}
