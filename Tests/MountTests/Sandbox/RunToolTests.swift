import Foundation
import TestSupport
import Testing

extension MountTests {
    @Suite(
        "Profiles of a run", .enabled(if: Machine.hasSandboxes, "bubblewrap cannot make a sandbox here"))
    struct RunTools {
        private let fixture: MountFixture
        private let home: String

        init() throws {
            fixture = try MountFixture()
            home = try fixture.directory("home")
        }

        private func write(_ text: String, _ path: String, mode: mode_t = 0o644) throws {
            let directory = URL(fileURLWithPath: path).deletingLastPathComponent()
            try FileManager.default.createDirectory(at: directory, withIntermediateDirectories: true)
            if mode & 0o111 != 0 { return try Command.writeProgram(text, to: path) }
            try text.write(toFile: path, atomically: false, encoding: .utf8)
            chmod(path, mode)
        }

        private func profile(_ name: String, _ text: String, mode: mode_t = 0o644) throws {
            try write(text, home + "/.config/grantfs/profiles/" + name, mode: mode)
        }

        private func run(_ script: String, _ options: String..., variables: [String: String] = [:]) throws -> Output {
            let environment = fixture.environment.merging(["HOME": home, "XDG_CONFIG_HOME": ""]) { $1 }.merging(variables) { $1 }
            return try Command.run(
                [Programs.grantfs, "run"] + options + ["--", "sh", "-c", script], environment: environment, within: 60)
        }

        @Test("A user's profile sets grants, binds, a search path and variables")
        func own() throws {
            let source = try fixture.source("docs")
            try write("granted\n", source + "/file")
            try write("#!/bin/sh\necho tool", home + "/opt/bin/mytool", mode: 0o755)
            try profile(
                "mine",
                """
                ro-bind = ["~/opt", "~/absent"]
                path = ["~/opt/bin", "~/absent/bin"]

                [[grant]]
                path = "\(source)"
                access = "read-only"

                [environment]
                MY_HOME = "~/x"
                """)
            let script =
                "mytool; cat \(source)/file; echo $MY_HOME $GIVEN; touch \(source)/no ~/opt/no 2>/dev/null || echo refused; ls -A ~"
            let output = try run(script, "--tool", "mine", "--env", "GIVEN=1")
            #expect(output.lines == ["tool", "granted", "\(home)/x 1", "refused", "opt"], "\(output)")
        }

        @Test("A profile that is unknown, invalid, a link or writable by others is refused")
        func refused() throws {
            try profile("loose", "network = true\n", mode: 0o666)
            let loose = try run("true", "--tool", "loose")
            #expect(loose.status == 1 && loose.errors.contains("others may write to it"), "\(loose)")
            try profile("wrong", "network = false\nrobind = [\"/x\"]\n")
            let wrong = try run("true", "--tool", "wrong")
            #expect(wrong.status == 1 && wrong.errors.contains("wrong:2: unknown key “robind” (did you mean “ro-bind”?)"), "\(wrong)")
            try write("network = true\n", home + "/elsewhere")
            try FileManager.default.createSymbolicLink(
                atPath: home + "/.config/grantfs/profiles/link", withDestinationPath: home + "/elsewhere")
            #expect(try run("true", "--tool", "link").status == 1, "a link is not followed")
            let unknown = try run("true", "--tool", "carg")
            #expect(unknown.status == 1 && unknown.errors.contains("did you mean “cargo”"), "\(unknown)")
            for name in ["../mine", "", ".", "a/b"] { #expect(try run("true", "--tool", name).status == 2, "\(name)") }
        }

        @Test("A profile's `network` sets the network, and `--network` overrides it")
        func network() throws {
            let own = try FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/ns/net")
            try profile("with", "network = true\n")
            try profile("without", "network = false\n")
            #expect(try run("readlink /proc/self/ns/net", "--tool", "with").lines == [own])
            #expect(try run("readlink /proc/self/ns/net", "--tool", "without").lines != [own])
            #expect(try run("readlink /proc/self/ns/net", "--tool", "without", "--network").lines == [own])
        }

        @Test("The cargo profile shows the toolchain and hides the credentials")
        func cargo() throws {
            try write("#!/bin/sh\necho cargo 1", home + "/.cargo/bin/cargo", mode: 0o755)
            try write("token\n", home + "/.cargo/credentials.toml")
            try write("x\n", home + "/.rustup/settings.toml")
            let script =
                "cargo; cat ~/.rustup/settings.toml; ls -A ~/.cargo; touch ~/.cargo/new && echo writable; touch ~/.cargo/bin/no || echo refused"
            let output = try run(script, "--tool", "cargo")
            #expect(output.lines == ["cargo 1", "x", "bin", "writable", "refused"], "\(output)")
            #expect(!FileManager.default.fileExists(atPath: home + "/.cargo/new"))
        }

        @Test(
            "The git profile shows only the user's name from the configuration",
            .enabled(if: Command.exists("git"), Comment(rawValue: Machine.needs("git"))))
        func git() throws {
            try write(
                """
                [user]
                    name = Ann "A" \\\\ Example
                    email = ann@example.org
                    signingkey = secret
                [credential]
                    helper = store
                [alias]
                    x = !touch /tmp/alias
                """, home + "/.gitconfig")
            try write("https://ann:secret@example.org\n", home + "/.git-credentials")
            let script =
                "git config --global --list; ls -A ~; cd /tmp && git init -q r && cd r && git commit -q --allow-empty -m x && git log --format='%an <%ae>'"
            let output = try run(script, "--tool", "git")
            #expect(output.status == 0, "\(output)")
            #expect(
                output.lines == [
                    "user.name=Ann A \\ Example", "user.email=ann@example.org", ".gitconfig", "Ann A \\ Example <ann@example.org>",
                ], "\(output)")
        }

        @Test("The last value of a variable counts, and the shown part of PATH is kept")
        func variables() throws {
            try write("#!/bin/sh\necho shown", home + "/shown/bin/t", mode: 0o755)
            try write("#!/bin/sh\necho hidden", home + "/hidden/t", mode: 0o755)
            let path = "\(home)/hidden:\(home)/shown/bin:/usr/bin:/bin"
            let output = try run(
                "t; echo $PATH; env | grep -c ^X=; echo $X", "--ro-bind", home + "/shown", "--env", "X=1", "--env", "X=2",
                variables: ["PATH": path])
            #expect(output.lines.first == "shown" && output.lines.suffix(2) == ["1", "2"], "\(output)")
            #expect(output.lines.dropFirst().first?.hasPrefix(home + "/shown/bin:/usr/local/bin") == true, "\(output)")
        }

        @Test("The shipped profiles can be read")
        func shipped() throws {
            let names = try FileManager.default.contentsOfDirectory(
                atPath: URL(fileURLWithPath: Programs.grantfs).deletingLastPathComponent().deletingLastPathComponent().path
                    + "/share/grantfs/profiles")
            #expect(names.sorted() == ["cargo", "claude", "codex", "gemini", "git", "go", "node", "opencode", "python"])
            for name in names { #expect(try run("true", "--tool", name).status == 0, "\(name)") }
        }
    }
}
