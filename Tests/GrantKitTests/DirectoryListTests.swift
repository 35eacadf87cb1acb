import Foundation
import TestSupport
import Testing

/// docs/Examples/DirectoryList, as a user runs it.
@Suite struct TheDirectoryList {
    private struct Row: Hashable {
        let id: String
        let state: String
        let place: String
    }

    private func run(_ fixture: MountFixture, _ arguments: String...) throws -> Output {
        try Command.run([Programs.directoryList, fixture.base + "/list"] + arguments, environment: fixture.environment)
    }

    private func rows(_ fixture: MountFixture) throws -> [Row] {
        try run(fixture, "list").orThrow().lines.map { line in
            let fields = line.split(separator: "\t").map(String.init)
            return Row(id: fields[0], state: fields[1], place: fields[2])
        }
    }

    @Test("DirectoryList keeps directories across runs and renews stale bookmarks")
    func life() throws {
        let fixture = try MountFixture()
        let (docs, music) = (try fixture.source("docs"), try fixture.source("music"))
        mkdir(docs + "/sub", 0o755)
        for file in ["note", "sub/deep"] { try Data("x".utf8).write(to: URL(fileURLWithPath: "\(docs)/\(file)")) }
        #expect(try rows(fixture).isEmpty)
        let first = try run(fixture, "add", docs).orThrow().trimmed
        let second = try run(fixture, "add", music).orThrow().trimmed
        #expect(Set(try rows(fixture)) == [Row(id: first, state: "-", place: docs), Row(id: second, state: "-", place: music)])
        #expect(try run(fixture, "contents", first).orThrow().lines == ["note", "sub/", "sub/deep"])
        // The user who added it chose to have it granted.
        #expect(Set(try fixture.list("--view", "directory-list").map(\.name)) == ["docs", "music"])

        rename(docs, docs + "-moved")
        #expect(try rows(fixture).first { $0.id == first } == Row(id: first, state: "stale", place: docs + "-moved"))
        #expect(try run(fixture, "contents", first).orThrow().lines.first == "note")
        try run(fixture, "renew", first).orThrow()
        #expect(try rows(fixture).first { $0.id == first } == Row(id: first, state: "-", place: docs + "-moved"))

        try run(fixture, "remove", second).orThrow()
        #expect(try rows(fixture).map(\.id) == [first])
        for wrong in [["contents", second], ["contents", "nonsense"], ["add", fixture.base + "/none"], ["remove", second], ["explode"]] {
            #expect(
                try Command.run([Programs.directoryList, fixture.base + "/list"] + wrong, environment: fixture.environment).status != 0)
        }
    }

    /// A program finds the grantfs that is tested.
    private var path: String { (Programs.grantfs as NSString).deletingLastPathComponent + ":/usr/bin:/bin" }

    @Test(
        "DirectoryList keeps a directory picked in its terminal",
        .enabled(if: Machine.offers("tmux"), Comment(rawValue: Machine.needs("tmux"))))
    func picksInTheTerminal() throws {
        let fixture = try MountFixture()
        let docs = try fixture.source("docs")
        try Data("x".utf8).write(to: URL(fileURLWithPath: docs + "/note"))
        let line = "HOME='\(fixture.base)/source' PATH='\(path)' '\(Programs.directoryList)' '\(fixture.base)/list' pick"
        let terminal = try TerminalSession(line, in: fixture, redirected: true)
        try terminal.waitFor("docs/")
        try terminal.send("docs", "Space", "Tab")
        try terminal.waitForReview("1 directory is to be granted")
        try terminal.send("Enter")
        #expect(try terminal.status() == 0)
        let id = try String(contentsOfFile: terminal.outputFile, encoding: .utf8).trimmingCharacters(in: .newlines)
        #expect(try rows(fixture) == [Row(id: id, state: "-", place: docs)])
        #expect(try fixture.list("--view", "directory-list").map { [$0.name, $0.access] } == [["docs", "read-write"]])

        let nothing = try TerminalSession(line, in: fixture, redirected: true)
        try nothing.waitFor("docs/")
        try nothing.send("C-c")
        #expect(try nothing.status() == 1)
        #expect(try rows(fixture).count == 1)
    }

    @Test(
        "DirectoryList keeps a directory picked in the desktop's chooser",
        .enabled(if: Machine.offers("dbus-daemon"), Comment(rawValue: Machine.needs("dbus-daemon"))))
    func picksOnTheDesktop() throws {
        let desktop = try FakeDesktop()
        let fixture = desktop.fixture
        let docs = try fixture.source("two words")
        fixture.switches["PATH"] = path
        _ = try desktop.play("0", "file://" + docs.replacingOccurrences(of: " ", with: "%20"))
        let id = try run(fixture, "pick", "desktop").orThrow().trimmed
        #expect(try rows(fixture) == [Row(id: id, state: "-", place: docs)])
        _ = try desktop.play("1")
        #expect(try run(fixture, "pick", "desktop").status == 1)
        fixture.switches["PATH"] = "/usr/bin:/bin"
        let nobody = try run(fixture, "pick", "desktop")
        #expect(nobody.status == 1 && nobody.errors.contains("the program grantfs has to be in PATH"), "\(nobody)")
        #expect(try rows(fixture).count == 1)
    }

    @Test(
        "DirectoryList keeps several directories picked at once, or none of them",
        .enabled(if: Machine.offers("dbus-daemon"), Comment(rawValue: Machine.needs("dbus-daemon"))))
    func picksSeveral() throws {
        let desktop = try FakeDesktop()
        let fixture = desktop.fixture
        let (docs, music) = (try fixture.source("docs"), try fixture.source("music"))
        fixture.switches["PATH"] = path
        _ = try desktop.play("0", "file://" + docs, "file://\(fixture.base)/nowhere")
        #expect(try run(fixture, "pick", "desktop").status == 1)
        #expect(try rows(fixture).isEmpty)
        _ = try desktop.play("0", "file://" + docs, "file://" + music)
        let ids = try run(fixture, "pick", "desktop").orThrow().lines
        #expect(ids.count == 2)
        #expect(Set(try rows(fixture)) == Set(zip(ids, [docs, music]).map { Row(id: $0, state: "-", place: $1) }))
        #expect(Set(try fixture.list("--view", "directory-list").map(\.name)) == ["docs", "music"])
    }

    @Test("DirectoryList shows why a directory is unusable", .enabled(if: Machine.hasFUSE))
    func losses() throws {
        let fixture = try MountFixture()
        let names = ["revoked", "deleted", "replaced"]
        var ids: [String: String] = [:]
        for name in names {
            let directory = try fixture.source(name)
            try Data("x".utf8).write(to: URL(fileURLWithPath: directory + "/note"))
            ids[name] = try run(fixture, "add", directory).orThrow().trimmed
        }
        let mountpoint = try fixture.mount("directory-list")
        // With a mount of the view, that is the way.
        for name in names {
            let id = try #require(ids[name])
            // Without an answer of the daemon in half a second it uses the host. On a slow machine
            // that may happen once.
            try fixture.wait(until: "\(name) is in the mount", within: 60) {
                try self.rows(fixture).contains(Row(id: id, state: "-", place: "\(mountpoint)/\(name)"))
            }
            #expect(try run(fixture, "contents", id).orThrow().lines == ["note"])
        }
        try fixture.revoke("revoked")
        for name in ["deleted", "replaced"] { try FileManager.default.removeItem(atPath: "\(fixture.base)/source/\(name)") }
        _ = try fixture.source("replaced")
        try Data("no bookmark".utf8).write(to: URL(fileURLWithPath: "\(fixture.base)/list/\(UUID().uuidString).bookmark"))
        let rows = try rows(fixture)
        #expect(rows.count == 4 && rows.allSatisfy { $0.place.hasPrefix("unavailable: ") })
        for (name, words) in [("revoked", "it is revoked"), ("deleted", "is missing"), ("replaced", "is replaced")] {
            #expect(rows.contains { $0.id == ids[name] && $0.place.contains(words) }, "\(name): \(rows)")
            #expect(try run(fixture, "contents", try #require(ids[name])).status == 1)
        }
        #expect(rows.contains { $0.place.contains("it is not a bookmark") })
        try fixture.restore("revoked")
        #expect(try run(fixture, "contents", try #require(ids["revoked"])).orThrow().lines == ["note"])
    }

    @Test(
        "DirectoryList works in a sandbox that has the view and no store",
        .enabled(if: Machine.hasFUSE && Machine.offers("bwrap"), Comment(rawValue: Machine.needs("bwrap"))))
    func sandboxed() throws {
        let fixture = try MountFixture()
        let source = try fixture.source("docs")
        try Data("x".utf8).write(to: URL(fileURLWithPath: source + "/note"))
        // The one place that both worlds see. Another process copies it: what a child of another test inherited for writing is not run.
        try Command.run(["cp", Programs.directoryList, source + "/DirectoryList"]).orThrow()
        try fixture.grant(source)
        // Swift's libraries are wherever this process has them from.
        let maps = Processes.kernelText("/proc/self/maps").split(separator: "\n")
        let core = try #require(maps.first { $0.hasSuffix("/libswiftCore.so") }?.split(separator: " ").last)
        try fixture.grant((String(core) as NSString).deletingLastPathComponent, name: "swift", "--read-only")
        let script = """
            run() { /grants/docs/DirectoryList /tmp/list "$@"; }
            id=$(run add /grants/docs) && run list && run contents "$id" && run add /usr
            """
        let output = try fixture.grantfs("run", "--env", "LD_LIBRARY_PATH=/grants/swift", "--", "sh", "-c", script)
        #expect(output.lines.first?.hasSuffix("\t-\t/grants/docs") == true, "\(output)")
        #expect(output.lines.dropFirst() == ["DirectoryList", "note"])
        // A directory without a grant stays ungranted: no store is present.
        #expect(output.status == 1)
    }
}
