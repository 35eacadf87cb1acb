import Foundation
import TestSupport
import Testing

extension MountTests {
    @Suite(
        "Snapshots of a run", .enabled(if: Machine.hasSandboxes, "bubblewrap cannot make a sandbox here"))
    struct RunSnapshots {
        private let fixture: MountFixture
        private let source: String

        init() throws {
            fixture = try MountFixture()
            source = try fixture.source("work")
        }

        private struct Listed: Decodable {
            let id: String
            let state: String
            let directories: [String]
        }

        private struct Differences: Decodable {
            struct Change: Decodable {
                let path: String
                let kind: String
                let what: [String]
            }
            let id: String
            let changes: [Change]
        }

        private struct UndoResult: Decodable {
            struct Left: Decodable {
                let cause: String
                let change: Differences.Change
            }
            let putBack: [Differences.Change]
            let left: [Left]
        }

        private func run(_ script: String, _ options: String...) throws -> Output {
            try fixture.grantfs(["run"] + options + ["--grant", source, "--", "sh", "-euc", "cd '\(source)'; " + script])
        }

        private func listed() throws -> [Listed] { try fixture.grantfs("diff", "--list", "--json").orThrow().decoded() }

        /// Everything of a tree but numbers of inodes: names, kinds, modes, owners, numbers of names, sizes, times, links, contents, attributes.
        private func picture(_ directory: String) throws -> String {
            try Command.shell(
                """
                cd "$1"
                find . -printf '%p %y %m %U:%G %n %s %T@ %l\\n' | sort
                find . -type f -print0 | sort -z | xargs -0r sha256sum
                find . -type f -size +1M -printf '%p %b\\n' | sort
                getfattr -Rd . 2>/dev/null || true
                """, directory
            ).text
        }

        private func makeTree() throws {
            try Command.shell(
                """
                cd "$1"
                mkdir -p sub/deep gone; echo one > a; echo two > b; ln b b2; ln -s a link; echo x > gone/f; mkfifo pipe
                truncate -s 10M sparse; echo end >> sparse; chmod 750 sub; chmod 444 gone/f; touch -d 2001-01-01 b sub
                printf 'odd' > "$(printf 'new\\nline \\377')"; setfattr -n user.colour -v red a || true
                """, source, as: fixture.owner
            ).orThrow()
        }

        private static let everyKind = """
            echo more >> a; echo more >> b; rm -r gone; mkdir -p new/below; echo n > new/below/f; ln -s /etc/passwd new/l; ln -sf b link
            chmod 700 sub; echo z > sub/deep/z; rm sparse; mkdir sparse; echo q > sparse/q; rm pipe; echo > pipe; rm new?line*
            """

        @Test("`undo` restores every kind of file")
        func everyKindIsPutBack() throws {
            try makeTree()
            let before = try picture(source)
            let output = try run(Self.everyKind, "--snapshot").orThrow()
            let snapshot = try #require(try listed().first)
            #expect(output.errors.contains("grantfs undo \(snapshot.id)") && snapshot.state == "ended" && snapshot.directories == [source])
            let differences: Differences = try fixture.grantfs("diff", "--json").orThrow().decoded()
            let kinds = Dictionary(differences.changes.map { (String($0.path.dropFirst(source.count + 1)), $0.kind) }) { $1 }
            #expect(kinds["a"] == "changed" && kinds["gone/f"] == "removed" && kinds["new/below/f"] == "added" && kinds["sub"] == "changed")
            #expect(kinds["b2"] == "changed" && kinds["pipe"] == "changed" && kinds["sub/deep"] == nil, "\(kinds)")
            let patch = try fixture.grantfs("diff", "--patch", snapshot.id).orThrow().text
            #expect(patch.contains("--- a/work/a\n+++ b/work/a\n@@ -1 +1,2 @@\n one\n+more\n"), "\(patch)")
            let changed = try picture(source)
            #expect(changed != before)
            _ = try fixture.grantfs("undo", "--dry-run", snapshot.id).orThrow()
            #expect(try picture(source) == changed, "a dry run changes nothing")
            try fixture.grantfs("undo", snapshot.id).orThrow()
            #expect(try picture(source) == before)
            #expect(try listed().first?.state == "undone")
            #expect(FileManager.default.fileExists(atPath: fixture.store + "/snapshots/\(snapshot.id)/after/0/new/below/f"), "kept")
            try fixture.grantfs("diff", "--forget", snapshot.id).orThrow()
            #expect(try listed().isEmpty)
            #expect(try picture(source) == before)
        }

        @Test("A reset modification time does not hide a change from `diff`")
        func timeSetBack() throws {
            try Data("one\n".utf8).write(to: URL(fileURLWithPath: source + "/a"))
            _ = try run("touch -r a ../t 2>/dev/null || touch -r a /tmp/t; echo two > a; touch -r /tmp/t a", "--snapshot")
            let differences: Differences = try fixture.grantfs("diff", "--json").orThrow().decoded()
            #expect(differences.changes.first { $0.path == source + "/a" }?.what.contains("contents") == true, "\(differences)")
        }

        @Test("A reserved name does not hide a new file from `diff`")
        func hiddenName() throws {
            try run("echo x > .grantfs-undo-x; echo x > .grantfs-snapshot-x", "--snapshot").orThrow()
            let differences: Differences = try fixture.grantfs("diff", "--json").orThrow().decoded()
            let added = Set(differences.changes.filter { $0.kind == "added" }.map(\.path))
            #expect(added == [source + "/.grantfs-undo-x", source + "/.grantfs-snapshot-x"])
        }

        /// What the program has written to the file `a`: it clears the screen, sets the clipboard, writes over its line, turns one round, in C1 and in UTF-8.
        private static let forged =
            "first\\tline\\n\\033[2Jcleared\\n\\033]52;c;YQ==\\007\\nevil\\rgood\\n\\342\\200\\256turned\\n\\302\\2332Jtoo\\n\\377end"

        @Test(
            "Changed contents cannot control the terminal of `diff`",
            .enabled(if: Command.exists("script"), "there is no script(1)"))
        func hiddenContents() throws {
            try run("printf '\(Self.forged)' > a", "--snapshot").orThrow()
            let command = "\(Programs.grantfs) diff --patch"
            let shown = try Command.run(["script", "-qec", command, "/dev/null"], environment: fixture.environment).orThrow().text
            let lines = shown.replacingOccurrences(of: "\r\n", with: "\n")
            #expect(
                !lines.unicodeScalars.contains {
                    ($0.properties.generalCategory == .control && $0 != "\n" && $0 != "\t") || $0 == "\u{202e}"
                },
                "\(lines.debugDescription)")
            for part in [
                "+first\tline\n", "+\\x1b[2Jcleared\n", "+\\x1b]52;c;YQ==\\x07\n", "+evil\\rgood\n", "\\u{202e}turned\n", "\\u{9b}2Jtoo\n",
                "\\xffend\n",
            ] {
                #expect(lines.contains(part), "\(part): \(lines)")
            }
            let raw = try fixture.grantfs("diff", "--patch").orThrow().text
            #expect(raw.contains("+\u{1B}[2Jcleared\n") && raw.contains("+evil\rgood\n"))
        }

        @Test("A copy killed in progress leaves no partial snapshot")
        func killedWhileCopying() throws {
            try Command.shell("cd \"$1\"; for i in $(seq 2000); do echo $i > $i; done; head -c 50000000 /dev/urandom > big", source)
                .orThrow()
            let snapshots = fixture.store + "/snapshots"
            let program = try Child(
                [Programs.grantfs, "run", "--snapshot", "--grant", source, "--", "touch", source + "/ran"],
                environment: fixture.environment, separateErrors: true)
            try fixture.wait(until: "it copies") {
                !((try? FileManager.default.contentsOfDirectory(atPath: snapshots)) ?? []).isEmpty
            }
            program.kill()
            let left = try FileManager.default.contentsOfDirectory(atPath: snapshots)
            let isWhole = left.contains { !$0.hasPrefix(".") }
            #expect(try listed().count == (isWhole ? 1 : 0))
            if isWhole { try fixture.grantfs("diff", "--forget", listed()[0].id).orThrow() }
            try run("rm -f ran; echo y > 1", "--snapshot").orThrow()
            #expect(try FileManager.default.contentsOfDirectory(atPath: snapshots) == [try listed()[0].id])
        }

        @Test("`undo` keeps a file changed by another program unless forced")
        func changedByOthers() throws {
            try makeTree()
            let before = try picture(source)
            try run(Self.everyKind, "--snapshot").orThrow()
            let id = try #require(try listed().first).id
            try Data("mine".utf8).write(to: URL(fileURLWithPath: source + "/new/below/f"))
            try Data("mine".utf8).write(to: URL(fileURLWithPath: source + "/own"))
            let output = try fixture.grantfs("undo", "--json", id)
            let result: UndoResult = try output.decoded()
            #expect(output.status == 3 && output.errors.contains("own"), "\(output)")
            #expect(
                Set(result.left.map(\.change.path)) == Set(["/new", "/new/below", "/new/below/f", "/own"].map { source + $0 }), "\(output)")
            #expect(FileManager.default.contents(atPath: source + "/new/below/f") == Data("mine".utf8))
            #expect(FileManager.default.contents(atPath: source + "/own") == Data("mine".utf8))
            #expect(FileManager.default.contents(atPath: source + "/a") == Data("one\n".utf8), "the rest is put back")
            // The restored file is the user's own now.
            try Data("again".utf8).write(to: URL(fileURLWithPath: source + "/a"))
            #expect(try fixture.grantfs("undo", id).status == 3)
            #expect(FileManager.default.contents(atPath: source + "/a") == Data("again".utf8))
            try fixture.grantfs("undo", "--force", id).orThrow()
            #expect(try picture(source) == before)
        }

        @Test("`undo` follows no link that the program left")
        func links() throws {
            try makeTree()
            let outside = fixture.base + "/outside"
            try Data("safe".utf8).write(to: URL(fileURLWithPath: outside + "/f"))
            try Data("safe".utf8).write(to: URL(fileURLWithPath: outside + "/deep"))
            let before = try picture(source)
            try run("rm -r gone sub; ln -s '\(outside)' gone; ln -s '\(outside)' sub; rm a; ln -s '\(outside)/f' a", "--snapshot").orThrow()
            let id = try #require(try listed().first).id
            try fixture.grantfs("undo", id).orThrow()
            #expect(try picture(source) == before)
            #expect(FileManager.default.contents(atPath: outside + "/f") == Data("safe".utf8))
            #expect(FileManager.default.contents(atPath: outside + "/deep") == Data("safe".utf8))
        }

        @Test("A killed `undo` leaves whole files and the next one finishes it")
        func killedWhilePuttingBack() throws {
            try Command.shell(
                "cd \"$1\"; for d in 1 2 3 4; do mkdir $d; for i in $(seq 60); do echo before $d/$i > $d/$i; done; done", source,
                as: fixture.owner
            ).orThrow()
            let before = try picture(source)
            try run(
                "for f in */*; do echo after $f > $f; done; rm */1*; mkdir new; for i in $(seq 60); do echo new $i > new/$i; done",
                "--snapshot"
            )
            .orThrow()
            let id = try #require(try listed().first).id
            var isInterrupted = false
            for round in 1...8 {
                let undo = try Child([Programs.grantfs, "undo", id], environment: fixture.environment, separateErrors: true)
                usleep(useconds_t(6_000 + 4_000 * round))
                undo.kill()
                for name in try FileManager.default.subpathsOfDirectory(atPath: source) where !name.contains(".grantfs-") {
                    guard let data = FileManager.default.contents(atPath: source + "/" + name), name.contains("/") else { continue }
                    let text = String(decoding: data, as: UTF8.self)
                    let number = name.split(separator: "/").last ?? ""
                    #expect(text == "before \(name)\n" || text == "after \(name)\n" || text == "new \(number)\n", "\(name): \(text)")
                }
                let now = try picture(source)
                if now != before, try listed().first?.state != "undone" { isInterrupted = true }
            }
            let last = try fixture.grantfs("undo", id)
            #expect(last.status == 0, "\(last)")
            #expect(try picture(source) == before)
            if !isInterrupted { print("every undo was faster than its killer") }
        }

        @Test("The changes of a killed run can be shown and undone")
        func killedRun() throws {
            try makeTree()
            let before = try picture(source)
            let program = try Child(
                [
                    Programs.grantfs, "run", "--snapshot", "--grant", source, "--", "sh", "-c",
                    "cd '\(source)'; echo x > a; rm -r gone; echo ready; sleep 600",
                ],
                environment: fixture.environment, separateErrors: true)
            try program.expect("ready")
            #expect(try listed().first?.state == "running")
            let id = try #require(try listed().first).id
            #expect(try fixture.grantfs("undo", id).errors.contains("its program runs"))
            kill(program.pid, SIGKILL)
            #expect(program.wait(within: 30) != nil)
            try fixture.wait(until: "it is nobody's") { try listed().first?.state == "interrupted" }
            try fixture.wait(until: "the view is gone") { fixture.mountpoints.isEmpty }
            let differences: Differences = try fixture.grantfs("diff", "--json").orThrow().decoded()
            #expect(Set(differences.changes.map(\.path)) == Set(["/a", "/gone", "/gone/f"].map { source + $0 }))
            try fixture.grantfs("undo", id).orThrow()
            #expect(try picture(source) == before)
        }

        @Test("`run --undo` restores the directory and removes the snapshot")
        func undo() throws {
            try makeTree()
            let before = try picture(source)
            let output = try run(Self.everyKind + "\nexit 5", "--undo")
            #expect(output.status == 5 && output.errors.contains("put back"), "\(output)")
            #expect(try picture(source) == before)
            #expect(try listed().isEmpty)
            let idle = try run("cat a", "--snapshot").orThrow()
            #expect(idle.errors.contains("changed nothing"), "\(idle)")
            #expect(try listed().isEmpty)
        }

        @Test(
            "`run --review` asks on a terminal whether to keep the changes",
            .enabled(if: Command.exists("script"), "there is no script(1)"),
            arguments: ["p", "k", "l"])
        func review(answer: String) throws {
            try makeTree()
            let before = try picture(source)
            let command = "\(Programs.grantfs) run --review --grant \(source) -- sh -c 'cd \(source); echo x > a'"
            let terminal = try Child(["script", "-qec", command, "/dev/null"], environment: fixture.environment)
            var seen = ""
            while let line = terminal.line(), !line.contains("M \(source)/a") { seen += line }
            terminal.send(answer)
            terminal.closeInput()
            #expect(terminal.wait(within: 60) == 0, "\(seen)")
            #expect(try (picture(source) == before) == (answer == "p"))
            #expect(try listed().count == (answer == "l" ? 1 : 0))
        }

        @Test(
            "A plain user undoes the changes of a run",
            .enabled(if: Machine.usersCanMount && Identity.isRoot, "needs root, and plain users who can mount"))
        func plainUser() throws {
            let own = try MountFixture(owner: try #require(Machine.plainUser))
            let directory = try own.source("work")
            try Command.shell("cd \"$1\"; echo one > mine; setfattr -n user.c -v red mine || true; ln mine name", directory, as: own.owner)
                .orThrow()
            let run = { (script: String) in
                try own.grantfs(["run", "--snapshot", "--grant", directory, "--", "sh", "-euc", "cd '\(directory)'; \(script)"])
            }
            let all = try run("echo began >&2; echo more >> mine; rm name; echo new > new")
            #expect(all.status == 0 && !all.errors.contains("but not"), "\(all)")
            let first = try #require(try own.grantfs("diff", "--list", "--json").orThrow().decoded(as: [Listed].self).first)
            let before = try picture(directory)
            try own.grantfs("undo", first.id).orThrow()
            #expect(try String(contentsOfFile: directory + "/name", encoding: .utf8) == "one\n")
            #expect(try picture(directory) != before && !FileManager.default.fileExists(atPath: directory + "/new"))

            try Command.shell("cd \"$1\"; echo two > other; echo three > third; chmod 666 other; chmod 4755 third", directory).orThrow()
            let some = try run("echo began >&2; echo more >> other")
            let said = some.errors.components(separatedBy: "began")
            #expect(some.status == 0 && said.count == 2, "\(some)")
            #expect(said[0].contains("and 1 more can be put back, but not the owner or group"), "\(some)")
            #expect(said[0].contains("work/third” can be put back, but not the set-id bits"), "\(some)")
        }

        @Test("A snapshot beyond its size limit prevents the start")
        func limit() throws {
            // In memory no data is shared.
            let other = try MountFixture(in: "/dev/shm")
            let directory = try other.source("big")
            try Data(count: 100_000).write(to: URL(fileURLWithPath: directory + "/f"))
            let output = try other.grantfs(
                ["run", "--snapshot", "--snapshot-limit", "50K", "--grant", directory, "--", "touch", directory + "/ran"])
            #expect(output.status == 1 && output.errors.contains("--snapshot-limit"), "\(output)")
            #expect(!FileManager.default.fileExists(atPath: directory + "/ran"))
            #expect(try FileManager.default.contentsOfDirectory(atPath: other.store + "/snapshots").isEmpty)
            #expect(try other.grantfs(["run", "--snapshot", "--grant", directory + ":ro", "--", "true"]).status == 2)
        }
    }
}
