import Foundation
import TestSupport
import Testing

extension MountTests {
    /// `diff` and `undo` of a user where something cannot be read, or is too deep for paths.
    @Suite(
        .enabled(
            if: Machine.hasSandboxes && Machine.usersCanMount && Machine.plainUser != nil,
            "needs a plain user who can mount, and bubblewrap that can make a sandbox"))
    struct UndoPartlyTests {
        private let fixture: MountFixture
        private let source: String

        init() throws {
            fixture = try MountFixture(owner: try #require(Machine.plainUser))
            source = try fixture.source("work")
            try Command.shell("cd \"$1\"; echo good > f; echo o > old; mkdir olddir; echo p > olddir/p", source, as: fixture.owner)
                .orThrow()
        }

        private func run(_ option: String, _ script: String) throws -> Output {
            try fixture.grantfs(["run", option, "--grant", source, "--", "sh", "-euc", "cd '\(source)'; " + script])
        }

        private struct Listed: Decodable {
            let id: String
        }

        /// The newest snapshot.
        private func id() throws -> String {
            try #require(try fixture.grantfs("diff", "--list", "--json").orThrow().decoded(as: [Listed].self).first).id
        }

        private func tree() throws -> String {
            try Command.shell("cd \"$1\"; find . -printf '%p %m\\n' | sort; cat f old olddir/p", source).orThrow().text
        }

        @Test(
            "An undo restores the user's files after any change of mode",
            arguments: [
                "mkdir x; chmod 000 x", "mkdir x; touch x/y; chmod 200 x", "echo z > x; chmod 000 x", "chmod 000 old", "chmod 000 olddir",
                "echo q > olddir/p; chmod 400 olddir", "rm f; mkdir -p f/g; touch f/g/y; chmod 000 f/g f", "chmod 000 .",
            ])
        func closed(script: String) throws {
            let before = try tree()
            let output = try run("--undo", "echo evil > f; " + script)
            #expect(output.status == 0, "\(output)")
            #expect(try tree() == before, "\(output)")
        }

        @Test("An undo restores closed files with a store on another filesystem")
        func otherFilesystem() throws {
            let store = "/dev/shm/grantfs-test-\(UUID())"
            mkdir(store, 0o700)
            chown(store, fixture.owner.uid, fixture.owner.gid)
            defer { try? FileManager.default.removeItem(atPath: store) }
            fixture.switches = ["GRANTFS_STORE": store]
            let before = try tree()
            let output = try run("--undo", "echo evil > f; echo z > x; mkdir y; echo z > y/z; chmod 000 x y/z y")
            #expect(output.status == 0, "\(output)")
            #expect(try tree() == before, "\(output)")
        }

        @Test("A closed directory hides no other change, and `diff` exits with 3")
        func listed() throws {
            try run("--snapshot", "echo evil > f; mkdir x; echo z > x/y; chmod 000 x").orThrow()
            let output = try fixture.grantfs("diff")
            #expect(output.status == 3 && output.text.contains("M \(source)/f (contents"), "\(output)")
            #expect(output.text.contains("A \(source)/x/ (unread)") && output.errors.contains("“\(source)/x” cannot be read"), "\(output)")
            #expect(try Command.shell("stat -c %a \"$1/x\"", source).orThrow().text == "0\n", "diff changes nothing")
            try fixture.grantfs("undo", id()).orThrow()
            #expect(try FileManager.default.contentsOfDirectory(atPath: source).sorted() == ["f", "old", "olddir"])
        }

        @Test("An undo names what it cannot restore, restores the rest and exits with 3", .enabled(if: TestSupport.Identity.isRoot))
        func foreign() throws {
            try run("--snapshot", "echo evil > f; mkdir x").orThrow()
            try Command.shell("cd \"$1\"; mkdir x/closed; chown 0:0 x/closed; chmod 700 x/closed", source).orThrow()
            let output = try fixture.grantfs("undo", "--force", id())
            #expect(output.status == 3 && output.errors.contains("“\(source)/x/closed” is unchanged"), "\(output)")
            #expect(try String(contentsOfFile: source + "/f", encoding: .utf8) == "good\n")
        }

        @Test("An undo removes a tree that is deeper than any path")
        func deep() throws {
            let script = """
                echo evil > f; exec python3 -c '
                import os
                for i in range(400):
                    os.mkdir("d" * 100)
                    os.chdir("d" * 100)
                open("end", "w").write("x")'
                """
            let before = try tree()
            let output = try run("--undo", script)
            #expect(output.status == 0, "\(output)")
            #expect(try tree() == before, "\(output)")
        }

        @Test("An undo restores a tree that is deeper than any path")
        func deepBefore() throws {
            let make = """
                import os, sys
                os.chdir(sys.argv[1])
                for i in range(60):
                    os.mkdir("d" * 100)
                    os.chdir("d" * 100)
                open("end", "w").write("before")
                """
            try Command.run(["/usr/bin/python3", "-c", make, source], as: fixture.owner).orThrow()
            let change = """
                import os
                for i in range(60): os.chdir("d" * 100)
                open("end", "w").write("after")
                """
            #expect(try run("--undo", "exec python3 -c '\(change)'").status == 0)
            let read = """
                import os, sys
                os.chdir(sys.argv[1])
                for i in range(60): os.chdir("d" * 100)
                print(open("end").read())
                """
            #expect(try Command.run(["/usr/bin/python3", "-c", read, source], as: fixture.owner).orThrow().text == "before\n")
        }
    }
}
