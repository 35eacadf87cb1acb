import Foundation
import TestSupport
import Testing

extension MountTests {
    /// One mount for many callers, each of which is given the directory of one view.
    @Suite struct AMountOfSeveralViews {
        private let fixture: MountFixture
        private let mountpoint: String

        init() throws {
            fixture = try MountFixture()
            mountpoint = try fixture.directory("mount")
        }

        /// Grants directories with a file each, and mounts the views that match.
        private func mount(_ pattern: String = "job-*", options: String? = nil) throws {
            for (view, name) in [("job-1", "held"), ("job-2", "other"), ("else", "hidden")] {
                let source = try fixture.source(name)
                try Data(name.utf8).write(to: URL(fileURLWithPath: source + "/file"))
                try fixture.grant(source, view: view)
            }
            try fixture.grantfs(["mount", "--views", pattern, mountpoint] + (options.map { ["-o", $0] } ?? [])).orThrow()
        }

        private func names(_ below: String = "") throws -> [String] {
            try Command.run(["ls", mountpoint + "/" + below], within: 30).orThrow().lines
        }

        private func shows(_ path: String) throws -> Bool { try Command.run(["stat", mountpoint + "/" + path], within: 30).status == 0 }

        @Test("A mount of several views shows each matching view and no other")
        func matching() throws {
            try mount()
            #expect(try names() == ["job-1", "job-2"])
            #expect(try names("job-1") == ["held"] && names("job-2") == ["other"])
            #expect(try !shows("else") && !shows("job-3") && !shows("job-2/held"))
            #expect(try Command.run(["cat", mountpoint + "/job-1/held/file"]).text == "held")
            // Tools that detect loops and hard links use these.
            let inodes = try Command.run(["find", mountpoint, "-maxdepth", "1", "-printf", "%i\n"]).orThrow().lines
            #expect(Set(inodes).count == 3)
            let listed = try Command.run(["ls", "-ai", mountpoint + "/job-1"]).orThrow().lines.map { $0.split(separator: " ") }
            let numbers = Dictionary(uniqueKeysWithValues: listed.map { (String($0[1]), String($0[0])) })
            #expect(numbers[".."] == "1" && numbers["."].map { inodes.contains($0) } == true)
        }

        @Test("mount(8) takes the pattern of views as its source", .enabled(if: Identity.isRoot, "needs root"))
        func mountWords() throws {
            let source = try fixture.source("a")
            try fixture.grant(source, view: "x")
            try fixture.grantfs(["mount", "?", mountpoint, "-o", "views"]).orThrow()
            #expect(try names() == ["x"])
            #expect(
                try Command.run(["findmnt", "-no", "SOURCE,FSTYPE", mountpoint]).trimmed.split(separator: " ") == ["?", "fuse.grantfs"])
        }

        @Test("Views that come and go keep their directory in the mount")
        func live() throws {
            try mount()
            let held = try Child([
                "sh", "-c", "cd \"$1\"; while read -r line; do echo \"$(ls -m . 2>&1)\"; done", "sh", mountpoint + "/job-1",
            ])
            func look() throws -> String? {
                held.send("?")
                return held.line()
            }
            #expect(try look() == "held")
            try fixture.grantfs("remove", "held", "--view", "job-1").orThrow()
            #expect(try names() == ["job-2"] && look() == "")
            // A process with the directory sees the next grant.
            try fixture.grant(fixture.base + "/source/held", name: "again", view: "job-1")
            #expect(try names() == ["job-1", "job-2"] && look() == "again")
            try fixture.grant(fixture.base + "/source/other", view: "job-3")
            #expect(try names() == ["job-1", "job-2", "job-3"] && names("job-3") == ["other"])
            try fixture.grantfs("set", "other", "--view", "job-3", "--name", "renamed").orThrow()
            #expect(try names("job-3") == ["renamed"])
        }

        @Test("A mount of several views refuses changes in its root and between views")
        func refused() throws {
            try mount()
            for words in [
                ["mkdir", "job-9"], ["mkdir", "job-1/x"], ["touch", "x"], ["touch", "job-1/x"], ["rmdir", "job-1"],
                ["chmod", "700", "job-1"],
                ["mv", "job-1", "job-9"], ["mv", "job-1/held", "job-2/held"], ["ln", "-s", "a", "job-1/x"],
            ] {
                let output = try Command.run(["sh", "-c", "cd \"$1\"; shift; exec \"$@\"", "sh", mountpoint] + words)
                #expect(output.status != 0 && output.errors.contains("Permission denied"), "\(words): \(output)")
            }
            let output = try Command.run(["mv", mountpoint + "/job-1/held/file", mountpoint + "/job-2/other/moved"])
            // By a copy, as between filesystems.
            #expect(output.status == 0 && FileManager.default.fileExists(atPath: fixture.base + "/source/other/moved"))
        }

        @Test(
            "A revocation in one view does not affect another view",
            arguments: ["shared", "exclusive", "none"])
        func revoked(cache: String) throws {
            let caller = Identity.current
            for (view, name) in [("job-1", "held"), ("job-2", "other")] {
                try Probe.prepare(try fixture.source(name), for: caller)
                try fixture.grant(fixture.base + "/source/" + name, view: view)
            }
            try fixture.grantfs("mount", "--views", "job-*", mountpoint, "-o", "cache=" + cache).orThrow()
            let native = try Probe.native(in: try fixture.directory("native"), as: caller)
            let probe = try Probe(below: mountpoint + "/job-1/held", cold: false, as: caller)
            let other = try Probe(below: mountpoint + "/job-2/other", cold: false, as: caller)
            #expect(try fixture.revoke("held", "--view", "job-1")[0].isConfirmed)
            ProbedMount.expectRefused(try probe.attempt(), native, "several views, cache=\(cache)", cache: cache)
            ProbedMount.expectNative(try other.attempt(), native, "the other view's")
            #expect(try names() == ["job-1", "job-2"] && names("job-1").isEmpty)
        }

        @Test("Every command knows the grants of a mount of several views")
        func commands() throws {
            try mount()
            struct Status: Decodable {
                struct Mount: Decodable {
                    struct Grant: Decodable { let name: String; let view: String? }
                    let view: String
                    let grants: [Grant]
                }
                let mounts: [Mount]
            }
            let all: Status = try fixture.grantfs("status", "--json").orThrow().decoded()
            #expect(all.mounts.map(\.view) == ["job-*"])
            #expect(all.mounts.first?.grants.map { [$0.view ?? "", $0.name] } == [["job-1", "held"], ["job-2", "other"]])
            let one: Status = try fixture.grantfs("status", "--view", "job-2", "--json").orThrow().decoded()
            #expect(one.mounts.first?.grants.map(\.name) == ["other"])
            let revoked: [RevocationDocument] = try fixture.grantfs("revoke", "--path", mountpoint + "/job-1/held", "--json").orThrow()
                .decoded()
            #expect(revoked.map(\.name) == ["held"] && revoked[0].mounts.count == 1 && revoked[0].isConfirmed)
            let root = try fixture.grantfs("revoke", "--path", mountpoint + "/job-1")
            #expect(root.status != 0 && root.errors.contains("job-*"), "\(root)")
            #expect(try fixture.grantfs("metrics").orThrow().text.contains("job-*"))
        }

        @Test("A mount of several views refuses options that it cannot keep")
        func cannot() throws {
            try mount()
            let second = try fixture.directory("second")
            let recover = try fixture.grantfs("mount", "--views", "job-*", second, "-o", "recover")
            #expect(recover.status == 2 && recover.errors.contains("recover"), "\(recover)")
            let slash = try fixture.grantfs("mount", "--views", "a/b", second)
            #expect(slash.status == 2 && slash.errors.contains("no pattern"), "\(slash)")
            let upgraded = try fixture.grantfs("upgrade", mountpoint)
            #expect(upgraded.status == 3 && upgraded.errors.contains("several views"), "\(upgraded)")
            #expect(try names() == ["job-1", "job-2"])
        }
    }
}

extension MountTests.AMountOfSeveralViews {
    /// Mounts two views with the same directory. A third has a directory inside it, and the first
    /// has one inside that.
    private func mountOverlapping() throws -> (one: String, other: String) {
        let source = try fixture.source("same")
        for number in 0..<50 { try Data("x".utf8).write(to: URL(fileURLWithPath: source + "/f\(number)")) }
        let inside = try fixture.source("same/inside")
        for (view, directory) in [("job-1", source), ("job-2", source), ("job-3", inside), ("job-1", inside)] {
            try fixture.grant(directory, view: view)
        }
        try fixture.grantfs("mount", "--views", "job-*", mountpoint).orThrow()
        return (mountpoint + "/job-1/same", mountpoint + "/job-2/same")
    }

    @Test(
        "A change through one view shows in another view of the same directory",
        arguments: MountTests.HostChanges.cases)
    func changesOfAnotherView(_ what: MountTests.HostChanges.Case) throws {
        _ = try mountOverlapping()
        let (one, other) = (mountpoint + "/job-2/same", mountpoint + "/job-3/inside")
        try MountTests.HostChanges.expectShown(what, changedIn: one + "/inside", shownIn: other, as: .current)
    }

    @Test("A directory in two views is cached unless it overlaps in its own view")
    func cachedBesideAnotherView() throws {
        let (one, other) = try mountOverlapping()
        func requests(of directory: String) throws -> Int {
            func now() throws -> Int {
                let requests = try fixture.status().mounts[0].requests
                return requests["LOOKUP", default: 0] + requests["GETATTR", default: 0]
            }
            let stat = ["sh", "-c", "cd \"$1\" && stat -c %s f*", "sh", directory]
            // Overlaps of views are detected after the views are shown.
            return try (0..<5).map { _ in
                try Command.run(stat).orThrow()
                let before = try now()
                try Command.run(stat).orThrow()
                return try now() - before
            }.min()!
        }
        #expect(try requests(of: other) < 25)
        #expect(try requests(of: one) >= 50)
        // Through another view's directory that lies between.
        for round in 0..<20 {
            try Data(repeating: 0, count: round).write(to: URL(fileURLWithPath: one + "/inside/grows"))
            let size = try FileManager.default.attributesOfItem(atPath: mountpoint + "/job-1/inside/grows")[.size] as? Int
            #expect(size == round)
        }
    }
}

extension MountTests.AHeldKernelLock {
    @Test(
        "A held kernel lock in one view delays no other view",
        .enabled(if: isPossible, "needs root, /dev/fuse and a plain user"), arguments: ["shared", "exclusive"])
    func ofOneView(cache: String) throws {
        let fixture = try MountFixture()
        let caller = try #require(Machine.plainUser)
        let memory = try HangingSource("memory", in: fixture, squashes: true)
        try memory.file("pages", size: 64 * 4096)
        chmod(memory.behind + "/pages", 0o666)
        for (view, name) in [("job-1", "held"), ("job-2", "other")] {
            let source = try fixture.source(name)
            try Data(name.utf8).write(to: URL(fileURLWithPath: source + "/file"))
            try fixture.grant(source, view: view)
        }
        let mountpoint = try fixture.directory("mount")
        try fixture.grantfs("mount", "--views", "job-*", mountpoint, "-o", "allow_other,cache=" + cache).orThrow()
        try memory.hang("read")
        let attack = try Attack("held-listing", [memory.directory + "/pages", mountpoint + "/job-1"], as: caller)
        func read(_ path: String) throws -> Output { try Command.run(["cat", mountpoint + "/" + path], within: 30) }
        #expect(try read("job-2/other/file").text == "other")
        #expect(try Command.run(["ls", mountpoint], within: 30).lines == ["job-1", "job-2"])
        #expect(try fixture.revoke("other", "--view", "job-2")[0].isConfirmed)
        #expect(try read("job-2/other/file").status != 0)
        #expect(try fixture.revoke("held", "--view", "job-1")[0].isConfirmed)
        try fixture.grant(fixture.base + "/source/held", view: "job-3")
        #expect(try read("job-3/held/file").text == "held")
        try fixture.grantfs("remove", "held", "--view", "job-3").orThrow()
        #expect(try read("job-3/held/file").status != 0)
        attack.end()
    }
}

extension MountTests.AMountOfSeveralViews {
    @Test(
        "A mount of the portal shows documents and applications"
    )
    func documents() throws {
        let source = try fixture.source("papers")
        try Data("text".utf8).write(to: URL(fileURLWithPath: source + "/paper.txt"))
        for view in ["app:", "app:org.example.One"] {
            try fixture.grant(source + "/paper.txt", name: "0a1b2c3d", view: view, "--as-directory")
            try fixture.grant(source, name: "4e5f6a7b", view: view)
        }
        try fixture.grantfs("mount", "--portal", "app:", mountpoint).orThrow()
        #expect(try names() == ["0a1b2c3d", "4e5f6a7b", "by-app"] && names("by-app") == ["org.example.One"])
        #expect(try names("0a1b2c3d") == ["paper.txt"] && names("4e5f6a7b") == ["papers"])
        #expect(try names("by-app/org.example.One") == ["0a1b2c3d", "4e5f6a7b"])
        // A request for it succeeds, and it is listed once it has contents.
        let held = try Child([
            "sh", "-c", "cd \"$1\"; while read -r line; do echo \"$(ls -m .)\"; done", "sh", mountpoint + "/by-app/org.example.Two",
        ])
        held.send("?")
        #expect(try held.line() == "" && names("by-app") == ["org.example.One"])
        try fixture.grant(source + "/paper.txt", name: "11112222", view: "app:org.example.Two", "--as-directory")
        held.send("?")
        #expect(try held.line() == "11112222" && names("by-app") == ["org.example.One", "org.example.Two"])

        func hostPath(_ path: String) throws -> Output {
            try Command.run(["getfattr", "--only-values", "-n", "user.document-portal.host-path", mountpoint + "/" + path], within: 30)
        }
        #expect(try hostPath("0a1b2c3d/paper.txt").text == source + "/paper.txt")
        #expect(try hostPath("4e5f6a7b/papers/paper.txt").text == source + "/paper.txt")
        let one = "by-app/org.example.One/"
        #expect(try hostPath(one + "0a1b2c3d/paper.txt").text == source + "/paper.txt")
        #expect(try hostPath(one + "4e5f6a7b/papers/paper.txt").text == source + "/paper.txt")
        // An application must not learn the siblings of a document.
        try Command.shell("touch \"$1\"", mountpoint + "/0a1b2c3d/beside").orThrow()
        #expect(try hostPath("0a1b2c3d/beside").status != 0 && hostPath("0a1b2c3d").status != 0)
        #expect(rename(source + "/paper.txt", source + "/renamed.txt") == 0)
        try fixture.wait(until: "it is followed") { try hostPath(one + "0a1b2c3d/paper.txt").text == source + "/renamed.txt" }
        #expect(rename(source + "/renamed.txt", source + "/paper.txt") == 0)
        try fixture.wait(until: "it is followed back") { try hostPath("0a1b2c3d/paper.txt").text == source + "/paper.txt" }
        #expect(try fixture.revoke("0a1b2c3d", "--view", "app:org.example.One")[0].isConfirmed)
        #expect(try !shows("by-app/org.example.One/0a1b2c3d/paper.txt") && shows("0a1b2c3d/paper.txt"))
        // One more grant for the program's, not for the mount's own directory.
        try fixture.grant(source, name: "by-app", view: "app:")
        #expect(try names().filter { $0 == "by-app" }.count == 1 && names("by-app").contains("org.example.One"))
    }
}
