import Foundation
import Glibc
import TestSupport
import Testing

extension MountTests {
    @Suite(
        .enabled(if: Machine.hasSandboxes, "bubblewrap cannot make a sandbox here"),
        .enabled(if: Command.exists("git"), Comment(rawValue: Machine.needs("git"))))
    struct RunWorktreeTests {
        private let fixture: MountFixture
        private var top: String { fixture.base + "/source" }

        init() throws {
            fixture = try MountFixture()
            _ = try fixture.source("repository")
            try shell(
                """
                cd repository; git init -q -b main; git config user.name A; git config user.email a@example.org
                echo one > a; git add a; git commit -qm one; echo secret > untracked; git worktree add -q ../work
                """)
        }

        private func shell(_ script: String) throws { try Command.shell("set -e; cd '\(top)'; " + script).orThrow() }

        private func run(_ script: String, _ options: String..., in directory: String = "work") throws -> Output {
            let begin = "cd '\(top)/\(directory)'; export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0='*'; "
            return try fixture.grantfs(["run", "--grant", "\(top)/\(directory)"] + options + ["--", "sh", "-uc", begin + script])
        }

        @Test("`--worktree` shows a worktree's repository, with protected hooks and settings")
        func worktree() throws {
            let without = try run("git status")
            #expect(without.status != 0 && without.errors.contains("git works in it with --worktree"), "\(without)")
            let output = try run(
                """
                echo two >> a; git commit -qam two; git checkout -qb topic; git log --format=%s
                for file in hooks/post-commit config config.worktree commondir worktrees/work/gitdir worktrees/work/commondir; do
                    if echo x 2>/dev/null >> ../repository/.git/$file; then echo "changed $file"; fi
                done
                ls -A ../repository
                """, "--worktree")
            #expect(output.status == 0 && output.lines == ["two", "one", ".git"], "\(output)")
            #expect(try Command.shell("cd '\(top)/work' && git status -sb && git log --format=%s").lines == ["## topic", "two", "one"])
            let reading = try run("git log --format=%s; echo x >> a; git commit -qam no && echo changed", "--worktree", "--read-only")
            #expect(reading.lines == ["two", "one"], "\(reading)")
        }

        @Test("`--worktree` grants a submodule's repository once")
        func submodule() throws {
            try shell("cd repository; git -c protocol.file.allow=always submodule --quiet add '\(top)/work' sub; git commit -qm sub")
            let script = "git log --format=%s; echo x 2>/dev/null >> ../.git/modules/sub/config && echo changed; ls -A ../.git"
            let output = try run(script, "--worktree", in: "repository/sub")
            #expect(output.lines == ["one", "modules"], "\(output)")
            let inside = try run(
                "git -C sub log --format=%s; ls /grants", "--grant", "\(top)/repository/sub", "--worktree", in: "repository")
            #expect(inside.lines == ["one", "repository", "sub"], "\(inside)")
            let quiet = try run("git -C sub log --format=%s", "--grant", "\(top)/repository/sub", in: "repository")
            #expect(quiet.lines == ["one"] && !quiet.errors.contains("--worktree"), "\(quiet)")
        }

        @Test("A file `.git` that names another repository grants nothing")
        func hostile() throws {
            try shell(
                """
                git init -q other; git init -q -b main third; git -C third -c user.name=A -c user.email=a@b commit -q --allow-empty -m x
                git -C third worktree add -q "$PWD/third-work"
                mkdir -p keys/worktrees/x keys/objects keys/refs; echo 'ref: x' > keys/HEAD; echo '\(top)/third-work/.git' > keys/worktrees/x/gitdir
                ln -s ../third/.git work/link
                """)
            let lines = [
                "gitdir: \(top)/keys", "gitdir: \(top)/keys/worktrees/x", "gitdir: \(top)/other/.git", "gitdir: ../other/.git",
                "gitdir: \(top)/third/.git/worktrees/third-work", "gitdir: link/worktrees/third-work", "gitdir: /", "gitdir: ", "gitdir: .",
                "gitdir: \(top)/none", "gitdir: /dev/null", "gitdir: " + String(repeating: "x/", count: 30_000),
            ]
            for line in lines {
                try shell("rm -f work/.git; printf '%s\\n' '\(line)' > work/.git")
                let output = try run("ls -A /grants", "--worktree")
                #expect(output.status != 0 && output.lines.isEmpty, "\(line.prefix(60)): \(output)")
                #expect(output.errors.contains("is not granted"), "\(output)")
            }
            // No file of a worktree.
            for script in [
                "ln -s ../repository/.git/worktrees/work work/.git", "mkfifo work/.git", "mkdir work/.git", "echo x > work/.git",
            ] {
                try shell("rm -rf work/.git; " + script)
                let output = try run("ls -A /grants", "--worktree")
                #expect(output.status == 2 && output.errors.contains("has a file .git"), "\(script): \(output)")
                #expect(try run("ls -A /grants").lines == ["work"])
            }
        }

        @Test("A repository that contains its worktree is not granted beside it")
        func around() throws {
            try shell("git clone -q --bare repository bare; git -C bare worktree add -q tree")
            let output = try run("ls -A /grants", "--worktree", "--hide", "a", in: "bare/tree")
            #expect(output.status == 2 && output.lines.isEmpty && output.errors.contains("lies in"), "\(output)")
        }

        @Test("A repository of another user is not granted", .enabled(if: geteuid() == 0, "needs root"))
        func otherOwner() throws {
            try Command.run(["chown", "-R", "65534", top + "/repository"]).orThrow()
            let output = try run("ls -A /grants", "--worktree")
            #expect(output.status != 0 && output.errors.contains("has another owner"), "\(output)")
        }
    }
}
