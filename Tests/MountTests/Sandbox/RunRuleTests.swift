import Foundation
import TestSupport
import Testing

extension MountTests {
    @Suite(.enabled(if: Machine.hasSandboxes, "bubblewrap cannot make a sandbox here"))
    struct RunRules {
        private let fixture: MountFixture
        private let source: String

        init() throws {
            fixture = try MountFixture()
            source = try fixture.source("work")
        }

        private func run(_ script: String, _ options: String...) throws -> Output {
            try fixture.grantfs(["run", "--grant", source] + options + ["--", "sh", "-euc", "cd '\(source)'; " + script])
        }

        private func shell(_ script: String) throws { try Command.shell("cd '\(source)'; " + script).orThrow() }

        @Test("The rules of a run apply to each granted directory and to no granted file")
        func each() throws {
            let (other, file) = (try fixture.source("other"), fixture.base + "/alone.key")
            try shell("echo s > .env; echo k > a.key; mkdir hooks; echo h > hooks/h; echo s > '\(other)/.env'; echo f > '\(file)'")
            let output = try run(
                """
                ls -A . '\(other)'; cat '\(file)'; test ! -e .env; ! echo x > .env 2>/dev/null; ! echo x > hooks/h 2>/dev/null
                cat hooks/h
                """, "--grant", other, "--grant", file + ":ro", "--hide", ".env", "--hide", "*.key", "--protect", "hooks")
            #expect(output.lines == [".:", "hooks", other + ":", "f", "h"], "\(output)")
            #expect(try String(contentsOfFile: source + "/.env", encoding: .utf8) == "s\n")
        }

        @Test("A run names what its rules have refused, and the log has the rule")
        func refusals() throws {
            try shell("echo s > .env")
            let script = "cat .env; echo x > .env; echo x > .git; true"
            let output = try fixture.grantfs(
                "run", "--grant", source, "--hide", ".env", "--protect", ".git", "--", "sh", "-c",
                "cd '\(source)'; { \(script); } 2>/dev/null")
            // Several for one call, where the kernel looks a name up first.
            let said = " operations were refused, the first at \(source)/.env: see grantfs why run-"
            #expect(output.status == 0 && output.errors.contains(said), "\(output)")
            let view = try #require(output.errors.split(separator: " ").last).trimmingCharacters(in: .newlines)
            let log = try fixture.grantfs("log", "--view", view).orThrow().text
            #expect(log.contains(" operations, by --hide “.env”"), "\(log)")
            #expect(try run("true", "--hide", ".env").errors.isEmpty)
        }

        @Test(
            "With `--protect-tools` commits, checkouts and rebases work, and hooks and settings cannot be changed",
            .enabled(if: Command.exists("git"), Comment(rawValue: Machine.needs("git"))))
        func protectedTools() throws {
            try shell(
                """
                git init -q -b main; git config user.name A; git config user.email a@example.org
                mkdir .vscode .claude .github; echo one > a; echo '{}' > .vscode/tasks.json; git add -A; git commit -qm one
                """)
            let output = try run(
                """
                export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0='*'
                git checkout -qb topic; echo two >> a; git commit -qam two; git checkout -q main; echo b > b; git add b; git commit -qm three
                git checkout -q topic; git rebase -q main; git log --format=%s
                for file in .git/hooks/pre-commit .git/config .git/commondir .vscode/tasks.json .claude/settings.json .bashrc sub/.git; do
                    mkdir -p sub
                    if echo x 2>/dev/null >> $file; then echo "changed $file"; fi
                done
                mv .git .got 2>/dev/null && echo renamed
                mkdir .github/workflows 2>/dev/null && echo made
                echo x > .envrc
                """, "--protect-tools", "--protect", "!.envrc")
            #expect(output.status == 0 && output.lines == ["two", "three", "one"], "\(output)")
            #expect(try String(contentsOfFile: source + "/.envrc", encoding: .utf8) == "x\n")
        }

        @Test(
            "`--protect-tools` protects what other rules show",
            arguments: [
                ["--only", "src/", "--only", ".vscode/", "--only", ".mcp.json", "--only", ".git/"],
                ["--hide", ".*", "--hide", "!.vscode/", "--hide", "!.mcp.json", "--hide", "!.git/"],
            ])
        func shownTools(_ rules: [String]) throws {
            try shell("mkdir -p .vscode .git/hooks; echo 1 > .vscode/tasks.json; echo 1 > .mcp.json; echo 1 > .git/hooks/h")
            let script = "for file in .vscode/tasks.json .mcp.json .git/hooks/h; do cat $file; ! echo x 2>/dev/null >> $file; done"
            let words = ["run", "--grant", source, "--protect-tools"] + rules + ["--", "sh", "-euc", "cd '\(source)'; " + script]
            #expect(try fixture.grantfs(words).orThrow().lines == ["1", "1", "1"])
        }

        @Test("`--protect-tools` refuses to make directories such as `.git` writable")
        func directoriesOfTools() throws {
            for name in [".git/hooks", ".config/autostart", ".vscode/x", "plain/.github"] {
                try FileManager.default.createDirectory(atPath: source + "/" + name, withIntermediateDirectories: true)
            }
            for name in [".git", ".git/hooks", ".config", ".config/autostart", ".vscode", ".vscode/x", "plain/.github"] {
                let place = source + "/" + name
                let output = try fixture.grantfs("run", "--protect-tools", "--grant", place, "--", "true")
                #expect(output.status == 1 && output.errors.contains("not granted for writing with --protect-tools"), "\(output)")
                try fixture.grantfs("run", "--protect-tools", "--grant", place + ":ro", "--", "true").orThrow()
            }
            try fixture.grantfs("run", "--protect-tools", "--grant", source + "/plain", "--", "true").orThrow()
            let own = try fixture.grantfs("run", "--protect-tools", "--protect", "!.vscode/", "--grant", source + "/.vscode", "--", "true")
            #expect(own.status == 0, "what the user takes out is granted: \(own)")
        }

        @Test("A snapshot of a run has no hidden files, and `undo` leaves them unchanged")
        func snapshot() throws {
            try shell("mkdir sub; echo secret > .env; echo secret > sub/.env; echo one > a; mkdir private; echo secret > private/x")
            try run("echo two > a; echo b > sub/b", "--snapshot", "--hide", ".env", "--hide", "private/").orThrow()
            let copied = try Command.run(["find", fixture.store + "/snapshots", "-name", ".env", "-o", "-name", "private"]).orThrow()
            #expect(copied.text == "")
            // Other programs make and change hidden files, before and after.
            try shell("echo changed > .env; mkdir new; echo new > new/.env; rm sub/.env; touch private/y")
            let text = try fixture.grantfs("diff").orThrow().text
            #expect(!text.contains(".env") && !text.contains("private") && text.contains("a (contents"), "\(text)")
            let id = try #require(try Command.run(["ls", fixture.store + "/snapshots"]).orThrow().lines.first)
            _ = try fixture.grantfs("undo", id)
            let rest = try Command.shell("cd '\(source)'; cat a .env new/.env; ls -A sub private").orThrow().lines
            #expect(rest == ["one", "changed", "new", "private:", "x", "y", "sub:"], "\(rest)")
        }

        @Test(
            "A snapshot judges other spellings where they count",
            .enabled(if: Identity.isRoot && Command.exists("bindfs"), Comment(rawValue: Machine.needs("bindfs"))))
        func spellings() throws {
            try fixture.mountOther(["bindfs", try fixture.directory("behind")], at: source)
            try shell("mkdir sub; echo secret > sub/.ENV; echo one > a")
            try run("echo two > a", "--snapshot", "--hide", ".env").orThrow()
            let copied = try Command.run(["find", fixture.store + "/snapshots", "-iname", ".env", "-o", "-name", "a"]).orThrow()
            #expect(copied.lines.count == 1 && copied.text.contains("/a\n"), "\(copied)")
            try shell("echo changed > sub/.ENV; echo new > .Env")
            let text = try fixture.grantfs("diff").orThrow().text
            #expect(!text.lowercased().contains(".env") && text.contains("a (contents"), "\(text)")
        }
    }
}
