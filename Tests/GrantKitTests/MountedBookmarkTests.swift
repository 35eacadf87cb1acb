import Foundation
import TestSupport
import Testing

@testable import GrantKit

@Suite(.enabled(if: Machine.hasFUSE, Comment(rawValue: Machine.noFUSE)))
struct ABookmarkAndAMount {
    @Test("A bookmark leads through a mount that shows the grant, else to the directory")
    func leads() throws {
        let bench = try Bench()
        let url = try bench.granted("docs")
        try bench.program {
            let data = try url.bookmarkData(options: .withSecurityScope)
            let file = try url.appendingPathComponent("note").bookmarkData(options: .withSecurityScope)
            #expect(try bench.resolve(data) == (url, false))
            let mountpoint = try bench.fixture.mount()
            #expect(try bench.resolve(data).url.path == mountpoint + "/docs")
            #expect(try bench.resolve(file).url.path == mountpoint + "/docs/note")
            #expect(try bench.resolve(file).url.text == "here")
            // A program that kept it without a mount is not told to renew it.
            #expect(try !bench.resolve(data).isStale)
            // A bookmark made in the mount is the same.
            let inMount = URL(fileURLWithPath: mountpoint + "/docs/note")
            let made = try inMount.bookmarkData(options: .withSecurityScope)
            // A child of another test has what this process has open, until it becomes its program.
            try bench.fixture.wait(until: "it is unmounted") { try bench.fixture.grantfs("unmount", mountpoint).status == 0 }
            #expect(try bench.resolve(made).url == url.appendingPathComponent("note"))
            // And a mount whose daemon has died leads nowhere.
            try bench.fixture.mount(at: "other")
            #expect(try bench.resolve(made).url.path == bench.fixture.base + "/other/docs/note")
            try bench.fixture.killDaemon(at: bench.fixture.base + "/other")
            #expect(try bench.resolve(made).url == url.appendingPathComponent("note"))
        }
        try bench.program(usesMountsOnly: true) {
            let data = try url.bookmarkData(options: .withSecurityScope)
            #expect(bench.failure(data) == .fileNoSuchFile)
            try bench.fixture.mount(at: "third")
            #expect(try bench.resolve(data).url.path == bench.fixture.base + "/third/docs")
        }
    }

    @Test("A library changes the rules of a grant in its mounts")
    func rules() throws {
        let bench = try Bench()
        let url = try bench.granted("docs")
        let note = try bench.fixture.mount() + "/docs/note"
        try bench.program {
            let handle = try FileHandle(forReadingFrom: URL(fileURLWithPath: note))
            let granted = try GrantedDirectory(containing: url)
            let hidden = try granted.setRules(try GrantRules(hide: [RulePattern("note")]))
            #expect(try hidden.rules == GrantRules(hide: [RulePattern("note")]) && granted.rules.isEmpty)
            #expect(throws: (any Error).self) { try handle.read(upToCount: 1) }
            #expect(!FileManager.default.fileExists(atPath: note))
            let shown = try hidden.setRules(.none)
            #expect(shown.rules.isEmpty && URL(fileURLWithPath: note).text == "here")
        }
    }

    @Test("A bookmark in a mount ends with the revocation of its grant")
    func revoked() throws {
        let bench = try Bench()
        let url = try bench.granted("docs")
        try bench.fixture.mount()
        try bench.program {
            let data = try url.bookmarkData(options: .withSecurityScope)
            let found = try bench.resolve(data).url
            #expect(found.startAccessingSecurityScopedResource())
            defer { found.stopAccessingSecurityScopedResource() }
            let handle = try FileHandle(forReadingFrom: found.appendingPathComponent("note"))
            try bench.fixture.revoke("docs")
            // A started access does not stay in force.
            #expect(throws: (any Error).self) { try handle.read(upToCount: 1) }
            #expect(found.appendingPathComponent("note").text == nil)
            #expect(!found.startAccessingSecurityScopedResource())
            #expect(bench.failure(data) == .fileReadNoPermission)
            #expect(cocoaCode { _ = try found.bookmarkData() } == .fileReadNoPermission)
            try bench.fixture.restore("docs")
            #expect(try bench.resolve(data).url.appendingPathComponent("note").text == "here")
        }
    }

    @Test("A bookmark made without a store resolves wherever the view is mounted")
    func mountAlone() throws {
        let bench = try Bench()
        _ = try bench.granted("docs")
        let mountpoint = try bench.fixture.mount()
        // Another store's view with the same names does not lead to it.
        let other = try Bench()
        _ = try other.granted("docs")
        try other.fixture.mount()
        let file = URL(fileURLWithPath: mountpoint + "/docs/note")
        try bench.programWithoutStore {
            #expect(cocoaCode { _ = try file.bookmarkData(options: .withSecurityScope) } != nil)
            #expect(file.startAccessingSecurityScopedResource())
            let data = try file.bookmarkData()
            file.stopAccessingSecurityScopedResource()
            #expect(try bench.resolve(data) == (file, false))
            try bench.fixture.revoke("docs")
            #expect(!file.startAccessingSecurityScopedResource())
            #expect(bench.failure(data) == .fileReadNoPermission)
            try bench.fixture.restore("docs")
            try bench.fixture.wait(until: "it is unmounted") { try bench.fixture.grantfs("unmount", mountpoint).status == 0 }
            // A silent daemon does not delay it.
            try other.fixture.killDaemon(at: other.fixture.base + "/mount", with: SIGSTOP)
            bench.programWithoutStore(Timeouts(look: 1)) { #expect(bench.failure(data) == .fileNoSuchFile) }
            try bench.fixture.mount(at: "other")
            let found = try bench.programWithoutStore(Timeouts(look: 5)) { try bench.resolve(data).url.path }
            #expect(found == bench.fixture.base + "/other/docs/note")
            // Nothing leads to the root of a view but the view.
            #expect(!URL(fileURLWithPath: bench.fixture.base + "/other").startAccessingSecurityScopedResource())
        }
    }

    @Test("A bookmark of a bind mount belongs to the grant", .enabled(if: Identity.isRoot, Comment(rawValue: Machine.needsRoot)))
    func bound() throws {
        let bench = try Bench()
        let url = try bench.granted("docs")
        try url.appendingPathComponent("deep", isDirectory: true).make()
        let mountpoint = try bench.fixture.mount()
        let (whole, grant, deep) = (try bench.plain("whole"), try bench.plain("grant"), try bench.plain("deep"))
        for (from, to) in [(mountpoint, whole), (mountpoint + "/docs", grant), (mountpoint + "/docs/deep", deep)] {
            try bench.fixture.mountOther(["mount", "--bind", from], at: to.path)
        }
        let places = [whole.appendingPathComponent("docs", isDirectory: true), grant, deep]
        try bench.program {
            for place in places {
                #expect(place.startAccessingSecurityScopedResource())
                place.stopAccessingSecurityScopedResource()
                let found = try bench.resolve(try place.bookmarkData(options: .withSecurityScope))
                #expect(found.url.path == mountpoint + "/docs" + (place == deep ? "/deep" : ""))
            }
        }
        try bench.programWithoutStore {
            for place in places.dropLast() {
                let data = try place.appendingPathComponent("note").bookmarkData()
                #expect(try bench.resolve(data) == (place.appendingPathComponent("note"), false))
            }
            // The directory above is not visible from there.
            let data = try deep.bookmarkData()
            #expect(try bench.resolve(data) == (deep, false))
            try bench.fixture.revoke("docs")
            for place in places { #expect(!place.startAccessingSecurityScopedResource()) }
            #expect(bench.failure(data) != nil)
        }
    }

    @Test(
        "A bookmark does not lead into a mount over the view",
        .enabled(if: Identity.isRoot, Comment(rawValue: Machine.needsRoot)))
    func covered() throws {
        let bench = try Bench()
        let url = try bench.granted("docs", "--view", "shut")
        let mountpoint = try bench.fixture.mount("shut")
        try bench.program {
            let data = try url.bookmarkData(options: .withSecurityScope)
            #expect(try bench.resolve(data).url.path == mountpoint + "/docs")
            // Another filesystem is mounted over it: here it is no longer a mount of the view.
            try bench.fixture.mountOther(["mount", "-t", "tmpfs", "none"], at: mountpoint)
            #expect(try bench.resolve(data).url == url)
        }
    }
}
