import Foundation
import TestSupport
import Testing

extension MountTests {
    /// The portal's mount: one for all applications, each of which is given the directory of one view.
    @Suite struct ADocumentsMount {
        private let fixture: MountFixture
        private let mountpoint: String

        init() throws {
            fixture = try MountFixture()
            mountpoint = try fixture.directory("mount")
        }

        /// Grants directories with a file each to two applications, and mounts the documents.
        private func mount(cache: String = "shared") throws {
            for (view, name) in [("app:one", "held"), ("app:two", "other")] {
                let source = try fixture.source(name)
                try Data(name.utf8).write(to: URL(fileURLWithPath: source + "/file"))
                try fixture.grant(source, view: view)
            }
            try fixture.grantfs("mount", "--portal", "app:", mountpoint, "-o", "cache=" + cache).orThrow()
        }

        private func names(_ below: String = "") throws -> [String] {
            try Command.run(["ls", mountpoint + "/" + below], within: 30).orThrow().lines
        }

        private func shows(_ path: String) throws -> Bool { try Command.run(["stat", mountpoint + "/" + path], within: 30).status == 0 }

        @Test("The portal's mount refuses changes outside grants")
        func refused() throws {
            try mount()
            for words in [
                ["mkdir", "by-app/one/x"], ["touch", "x"], ["touch", "by-app/one/x"], ["rmdir", "by-app/one"],
                ["chmod", "700", "by-app/one"],
                ["mv", "by-app/one", "by-app/three"], ["mv", "by-app/one/held", "by-app/two/held"], ["ln", "-s", "a", "by-app/one/x"],
            ] {
                let output = try Command.run(["sh", "-c", "cd \"$1\"; shift; exec \"$@\"", "sh", mountpoint] + words)
                #expect(output.status != 0 && output.errors.contains("Permission denied"), "\(words): \(output)")
            }
            let moved = [mountpoint + "/by-app/one/held/held/file", mountpoint + "/by-app/two/other/other/moved"]
            // By a copy, as between filesystems.
            #expect(try Command.run(["mv"] + moved).status == 0)
            #expect(FileManager.default.fileExists(atPath: fixture.base + "/source/other/moved"))
        }

        @Test("At most 4,096 directories of unknown applications exist at a time")
        func unknown() throws {
            try mount()
            let script = """
                import os, resource, sys
                resource.setrlimit(resource.RLIMIT_NOFILE, (8000, 8000))
                held = []
                for number in range(5000):
                    try: held.append(os.open(f"{sys.argv[1]}/by-app/unknown{number}", os.O_PATH))
                    except FileNotFoundError: break
                print(len(held))
                """
            let count = try #require(Int(Command.run(["python3", "-c", script, mountpoint], within: 60).orThrow().trimmed))
            #expect(count > 4_000 && count <= 4_096)
        }

        @Test("An application's directory outlives its last grant and shows the next one")
        func live() throws {
            try mount()
            let held = try Child([
                "sh", "-c", "cd \"$1\"; while read -r line; do echo \"$(ls -m . 2>&1)\"; done", "sh", mountpoint + "/by-app/one",
            ])
            func look() throws -> String? {
                held.send("?")
                return held.line()
            }
            #expect(try look() == "held")
            try fixture.grantfs("remove", "held", "--view", "app:one").orThrow()
            #expect(try names("by-app") == ["two"] && look() == "")
            try fixture.grant(fixture.base + "/source/held", name: "again", view: "app:one")
            #expect(try names("by-app") == ["one", "two"] && look() == "again")
        }

        @Test(
            "A revocation for one application leaves others unchanged",
            arguments: ["shared", "exclusive", "none"])
        func revoked(cache: String) throws {
            let caller = Identity.current
            for name in ["held", "other"] { try Probe.prepare(try fixture.source(name), for: caller) }
            try mount(cache: cache)
            let native = try Probe.native(in: try fixture.directory("native"), as: caller)
            let probe = try Probe(below: mountpoint + "/by-app/one/held/held", cold: false, as: caller)
            let other = try Probe(below: mountpoint + "/by-app/two/other/other", cold: false, as: caller)
            #expect(try fixture.revoke("held", "--view", "app:one")[0].isConfirmed)
            ProbedMount.expectRefused(try probe.attempt(), native, "several applications, cache=\(cache)", cache: cache)
            ProbedMount.expectNative(try other.attempt(), native, "the other application's")
            #expect(try names("by-app") == ["one", "two"] && names("by-app/one/held").isEmpty)
        }

        @Test("The portal's mount refuses `-o recover` and `upgrade`")
        func cannot() throws {
            try mount()
            let second = try fixture.directory("second")
            let recover = try fixture.grantfs("mount", "--portal", "app:", second, "-o", "recover")
            #expect(recover.status == 2 && recover.errors.contains("recover"), "\(recover)")
            let upgraded = try fixture.grantfs("upgrade", mountpoint)
            #expect(upgraded.status == 3 && upgraded.errors.contains("several views"), "\(upgraded)")
            #expect(try names("by-app") == ["one", "two"])
        }
    }
}

extension MountTests.ADocumentsMount {
    /// Mounts two applications' grants of one directory. A third one has a directory in it, and so has the first.
    private func mountOverlapping() throws -> (one: String, other: String) {
        let source = try fixture.source("same")
        for number in 0..<50 { try Data("x".utf8).write(to: URL(fileURLWithPath: source + "/f\(number)")) }
        let inside = try fixture.source("same/inside")
        for (view, directory) in [("app:one", source), ("app:two", source), ("app:three", inside), ("app:one", inside)] {
            try fixture.grant(directory, view: view)
        }
        try fixture.grantfs("mount", "--portal", "app:", mountpoint).orThrow()
        return (mountpoint + "/by-app/one/same/same", mountpoint + "/by-app/two/same/same")
    }

    @Test(
        "Applications with one directory see each other's changes like the host's",
        arguments: MountTests.HostChanges.cases)
    func changesOfAnotherView(_ what: MountTests.HostChanges.Case) throws {
        _ = try mountOverlapping()
        let (one, other) = (mountpoint + "/by-app/two/same/same", mountpoint + "/by-app/three/inside/inside")
        try MountTests.HostChanges.expectShown(what, changedIn: one + "/inside", shownIn: other, as: .current)
    }

    @Test("Names are cached unless grants of one application overlap")
    func cachedBesideAnotherView() throws {
        let (one, other) = try mountOverlapping()
        func requests(of directory: String) throws -> Int {
            func now() throws -> Int {
                let requests = try fixture.requests()
                return requests["LOOKUP", default: 0] + requests["GETATTR", default: 0]
            }
            let stat = ["sh", "-c", "cd \"$1\" && stat -c %s f*", "sh", directory]
            // The daemon checks for overlaps after it shows the grants.
            return try (0..<5).map { _ in
                try Command.run(stat).orThrow()
                let before = try now()
                try Command.run(stat).orThrow()
                return try now() - before
            }.min()!
        }
        #expect(try requests(of: other) < 25)
        #expect(try requests(of: one) >= 50)
        // Through the directory that lies between.
        for round in 0..<20 {
            try Data(repeating: 0, count: round).write(to: URL(fileURLWithPath: one + "/inside/grows"))
            let size = try FileManager.default.attributesOfItem(atPath: mountpoint + "/by-app/one/inside/inside/grows")[.size] as? Int
            #expect(size == round)
        }
    }

    @Test("A document names its host path, and any application has a directory")
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
        // Any name exists. It is listed when there is something in it.
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
        // A file beside a document has no path that an application should know.
        try Command.shell("touch \"$1\"", mountpoint + "/0a1b2c3d/beside").orThrow()
        #expect(try hostPath("0a1b2c3d/beside").status != 0 && hostPath("0a1b2c3d").status != 0)
        #expect(rename(source + "/paper.txt", source + "/renamed.txt") == 0)
        try fixture.wait(until: "it is followed") { try hostPath(one + "0a1b2c3d/paper.txt").text == source + "/renamed.txt" }
        #expect(rename(source + "/renamed.txt", source + "/paper.txt") == 0)
        try fixture.wait(until: "it is followed back") { try hostPath("0a1b2c3d/paper.txt").text == source + "/paper.txt" }
        #expect(try fixture.revoke("0a1b2c3d", "--view", "app:org.example.One")[0].isConfirmed)
        #expect(try !shows("by-app/org.example.One/0a1b2c3d/paper.txt") && shows("0a1b2c3d/paper.txt"))
        // A grant with the name of the mount's own directory does not replace that.
        try fixture.grant(source, name: "by-app", view: "app:")
        #expect(try names().filter { $0 == "by-app" }.count == 1 && names("by-app").contains("org.example.One"))
    }
}

extension MountTests.AHeldKernelLock {
    @Test(
        "A held lock of an application's directory delays no other application",
        .enabled(if: isPossible, "needs root, /dev/fuse and a plain user"), arguments: ["shared", "exclusive"])
    func ofOneApplication(cache: String) throws {
        let fixture = try MountFixture()
        let caller = try #require(Machine.plainUser)
        let memory = try HangingSource("memory", in: fixture, squashes: true)
        try memory.file("pages", size: 64 * 4096)
        chmod(memory.behind + "/pages", 0o666)
        for (view, name) in [("app:one", "held"), ("app:two", "other")] {
            let source = try fixture.source(name)
            try Data(name.utf8).write(to: URL(fileURLWithPath: source + "/file"))
            try fixture.grant(source, view: view)
        }
        let mountpoint = try fixture.directory("mount")
        try fixture.grantfs("mount", "--portal", "app:", mountpoint, "-o", "allow_other,cache=" + cache).orThrow()
        try memory.hang("read")
        let attack = try Attack("held-listing", [memory.directory + "/pages", mountpoint + "/by-app/one"], as: caller)
        func read(_ path: String) throws -> Output { try Command.run(["cat", mountpoint + "/by-app/" + path], within: 30) }
        #expect(try read("two/other/other/file").text == "other")
        #expect(try Command.run(["ls", mountpoint + "/by-app"], within: 30).lines == ["one", "two"])
        #expect(try fixture.revoke("other", "--view", "app:two")[0].isConfirmed)
        #expect(try read("two/other/other/file").status != 0)
        #expect(try fixture.revoke("held", "--view", "app:one")[0].isConfirmed)
        try fixture.grant(fixture.base + "/source/held", view: "app:three")
        #expect(try read("three/held/held/file").text == "held")
        try fixture.grantfs("remove", "held", "--view", "app:three").orThrow()
        #expect(try read("three/held/held/file").status != 0)
        attack.end()
    }
}
