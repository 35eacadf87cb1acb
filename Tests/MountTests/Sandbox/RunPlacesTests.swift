import Foundation
import TestSupport
import Testing

extension MountTests {
    @Suite(
        "Paths in a sandbox",
        .enabled(if: Machine.hasSandboxes, "bubblewrap cannot make a sandbox here"))
    struct RunPlaces {
        private let fixture: MountFixture
        private let source: String

        init() throws {
            fixture = try MountFixture()
            source = try fixture.source("docs")
            try "granted\n".write(toFile: source + "/file", atomically: false, encoding: .utf8)
        }

        /// Runs a script in the sandbox, with these options, from a directory.
        private func run(_ script: String, _ options: String..., from directory: String = "/", of fixture: MountFixture? = nil) throws
            -> Output
        {
            let fixture = fixture ?? self.fixture
            let words =
                ["sh", "-c", "cd \"$1\" && shift && exec \"$@\"", "sh", directory, Programs.grantfs(for: fixture.owner), "run"] + options
            return try Command.run(
                words + ["--", "sh", "-c", script], as: fixture.owner, environment: fixture.environment, within: 60)
        }

        @Test("A granted directory is at its own path and in the view")
        func ownPath() throws {
            try FileManager.default.createDirectory(atPath: source + "/below", withIntermediateDirectories: true)
            let script = "pwd; cat \(source)/file /grants/docs/file; echo new > \(source)/new; ls \(fixture.base)"
            let output = try run(script, "--grant", source, from: source + "/below")
            #expect(output.lines == [source + "/below", "granted", "granted", "source"], "\(output)")
            #expect(try String(contentsOfFile: source + "/new", encoding: .utf8) == "new\n")
            #expect(try run("pwd", "--grant", source, from: fixture.base).lines == ["/grants"], "who stands elsewhere starts in the view")
            #expect(try run("cd \(source)/below && pwd", "--grant", source + ":ro").lines == [source + "/below"])
            let refused = try run("echo new > \(source)/no", "--grant", source + ":ro")
            #expect(refused.status != 0 && refused.errors.contains("Read-only"), "\(refused)")
        }

        @Test("A plain user's granted directory is at its own path", .enabled(if: Machine.usersCanMount, "plain users cannot mount here"))
        func ownPathOfAUser() throws {
            let fixture = try MountFixture(owner: try #require(Machine.plainUser))
            let source = try fixture.source("docs")
            try "granted\n".write(toFile: source + "/file", atomically: false, encoding: .utf8)
            let output = try run("pwd; cat \(source)/file; : > \(source)/new", "--grant", source, from: source, of: fixture)
            #expect(output.status == 0 && output.lines == [source, "granted"], "\(output)")
        }

        @Test("With `--at`, a granted directory is only in the view")
        func elsewhere() throws {
            let output = try run("pwd; cat docs/file; ls -d \(source) /grants", "--grant", source, "--at", "/work/here", from: source)
            #expect(output.lines == ["/work/here", "granted"], "\(output)")
        }

        @Test("Files of the system that are removed at any time do not stop a sandbox", .enabled(if: Identity.isRoot, "needs root"))
        func passingFiles() throws {
            let directory = "/usr/local/etc/grantfs-test-\(getpid())"
            try FileManager.default.createDirectory(atPath: directory, withIntermediateDirectories: true)
            defer { try? FileManager.default.removeItem(atPath: directory) }
            // Larger than what is copied of files that do not change.
            let script = "cd \(directory); while :; do truncate -s 2M large; : >small; rm large small; done"
            let replacing = try Child(["sh", "-c", script])
            defer { replacing.kill() }
            for _ in 0..<50 { try run("true", "--grant", source).orThrow() }
        }

        @Test("Directories with one basename have a name and a path each")
        func sameNames() throws {
            let others = try ["a", "b"].map { try fixture.source($0 + "/docs") }
            for other in others { try (other + "\n").write(toFile: other + "/which", atomically: false, encoding: .utf8) }
            let output = try run(
                "ls /grants; cat \(others[0])/which \(others[1])/which /grants/docs-2/which; cat \(source)/file", "--grant", source,
                "--grant", others[0], "--grant", others[1] + ":ro")
            #expect(output.lines == ["docs", "docs-2", "docs-3", others[0], others[1], others[0], "granted"], "\(output)")
        }

        @Test("A directory inside another granted one is only in the view")
        func nested() throws {
            let inner = try fixture.source("docs/inner")
            let output = try run("ls /grants; ls \(source)", "--grant", inner, "--grant", source)
            #expect(output.lines == ["docs", "inner", "file", "inner"], "\(output)")
            #expect(output.errors.contains("is at /grants/inner alone"), "\(output)")
        }

        @Test("A revoked directory is refused at its own path")
        func revoked() throws {
            let script = "exec 2>&1; echo ready; while read -r line; do cat \(source)/file; echo done; done"
            let program = try Child(
                [Programs.grantfs, "run", "--grant", source, "--", "sh", "-c", script], environment: fixture.environment)
            try program.expect("ready")
            program.send("once")
            try program.expect("granted")
            try program.expect("done")
            #expect(try fixture.revoke("docs").allSatisfy(\.isConfirmed))
            program.send("twice")
            let line = try #require(program.line())
            #expect(line.contains("Permission denied"), "\(line)")
            try program.expect("done")
            program.closeInput()
            #expect(program.wait(within: 30) == 0)
        }

        @Test("A file granted for reading is at its own path and can be revoked")
        func file() throws {
            let file = source + "/file"
            try "secret\n".write(toFile: source + "/secret", atomically: false, encoding: .utf8)
            let output = try run("cat \(file); echo more >> \(file); ls /grants; cat \(source)/secret", "--grant", file + ":ro")
            #expect(output.lines == ["granted", "file"] && output.errors.contains("Read-only"), "\(output)")
            #expect(try String(contentsOfFile: file, encoding: .utf8) == "granted\n")
            let script = "cat \(file) && echo ready; read line; cat \(file) 2>&1; echo done"
            let program = try Child(
                [Programs.grantfs, "run", "--grant", file + ":ro", "--", "sh", "-c", script], environment: fixture.environment)
            try program.expect("granted")
            try program.expect("ready")
            #expect(try fixture.revoke("file").allSatisfy(\.isConfirmed))
            program.send("go on")
            let line = try #require(program.line())
            #expect(line.contains("Permission denied"), "\(line)")
            try program.expect("done")
        }

        @Test("A file granted for writing can be saved by a rename at its own path")
        func writtenFile() throws {
            let file = source + "/file"
            try "secret\n".write(toFile: source + "/secret", atomically: false, encoding: .utf8)
            let script = "ls -A \(source); sed -i s/granted/saved/ \(file); cat \(file) /grants/file/file; cat \(source)/secret"
            let output = try run(script, "--grant", file)
            #expect(output.lines == ["file", "saved", "saved"] && output.errors.contains("No such file"), "\(output)")
            #expect(try String(contentsOfFile: file, encoding: .utf8) == "saved\n")
            #expect(try FileManager.default.contentsOfDirectory(atPath: source).sorted() == ["file", "secret"])
            let refused = try run("true", "--grant", file, "--undo")
            #expect(refused.status == 2 && refused.errors.contains("is a file"), "\(refused)")
        }

        @Test("A directory named by `--ro-bind` is at its own path and read-only")
        func bind() throws {
            let tool = try fixture.source("tool")
            try "tool\n".write(toFile: tool + "/program", atomically: false, encoding: .utf8)
            let script = "cat \(tool)/program; touch \(tool)/new 2>/dev/null || echo refused; cat \(source)/file; ls /proc/self/fd; exit 7"
            let output = try run(script, "--ro-bind", tool, "--grant", source)
            #expect(output.lines == ["tool", "refused", "granted", "0", "1", "2", "3"], "3 is the listing's own: \(output)")
            #expect(output.status == 7)
        }

        @Test("A bind of an unsafe path is refused")
        func refusedBinds() throws {
            let inner = try fixture.source("docs/inner")
            for (path, status) in [("/dev/null", 1), (source + "/absent", 1), (inner, 2), ("/etc", 2), ("/proc/self", 2)] {
                let output = try run("true", "--grant", source, "--ro-bind", path)
                #expect(output.status == Int32(status), "\(path): \(output)")
            }
            try fixture.grant(source)
            for path in [fixture.store, fixture.base, fixture.store + "/run", fixture.store + "/grants.sqlite"] {
                let output = try run("true", "--ro-bind", path)
                #expect(output.status == 1 && output.errors.contains("the store"), "\(path): \(output)")
            }
        }

        @Test("A directory that becomes a link during the setup prevents the start")
        func swapped() throws {
            let secret = try fixture.source("secret")
            try "secret\n".write(toFile: secret + "/key", atomically: false, encoding: .utf8)
            let bound = try fixture.source("bound")
            // One that comes in between.
            let programs = try fixture.directory("programs")
            let script = "#!/bin/sh\nmv \(bound) \(bound).away && ln -s \(secret) \(bound)\nexec /usr/bin/bwrap \"$@\""
            try Command.writeProgram(script, to: programs + "/bwrap")
            let output = try Command.shell(
                "PATH=$1:$PATH exec \"$2\" run --store \"$3\" --ro-bind \"$4\" -- sh -c \"ls '$4'\"", programs, Programs.grantfs,
                fixture.store, bound)
            #expect(output.status == 1 && output.lines.isEmpty, "\(output)")
            #expect(output.errors.contains("has changed meanwhile"), "\(output)")
        }
    }
}
