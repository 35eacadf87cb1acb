import Foundation
import Glibc
import TestSupport
import Testing

extension MountTests {
    @Suite(.enabled(if: Machine.hasSandboxes, "bubblewrap cannot make a sandbox here"))
    struct RunConfigTests {
        private let fixture: MountFixture
        private var work: String { fixture.base + "/source/work" }
        private var other: String { fixture.base + "/source/other" }

        init() throws {
            fixture = try MountFixture()
            _ = try fixture.source("other")
            _ = try fixture.source("work")
            try Command.shell(
                """
                cd "$1"; mkdir -p secret sub .git/hooks; echo a > a; echo key > secret/key; echo env > .env; echo env > sub/.env
                echo config > .git/config; echo b > b; ln -s secret/key link; ln -s ../other/file out; echo other > ../other/file
                """, work
            ).orThrow()
        }

        private func configuration(_ text: String, _ name: String = "settings") throws -> String {
            let path = fixture.base + "/" + name
            let text = text.replacingOccurrences(of: "WORK", with: work).replacingOccurrences(of: "OTHER", with: other)
            try text.write(toFile: path, atomically: false, encoding: .utf8)
            chmod(path, 0o600)
            return path
        }

        private func run(_ options: [String], _ script: String = look) throws -> Output {
            let words = [Programs.grantfs, "run"] + options + ["--", "bash", "-c", "cd '\(work)'; " + script]
            return try Command.run(["env", "-C", work] + words, environment: fixture.environment, within: 60)
        }

        /// Prints the files that it could read, and those that it could write to.
        private static let look = """
            printf read:; for file in a secret/key .env sub/.env .git/config link out; do
                if cat "$file" >/dev/null 2>&1; then printf ' %s' "$file"; fi; done
            printf '\\nwrite:'; for file in a b new .git/config .git/hooks/new sub/new secret/new; do
                if : 2>/dev/null >> "$file"; then printf ' %s' "$file"; fi; done
            echo; env | grep -c ^https_proxy
            """

        @Test("`--config` takes a sandbox runtime's settings, with denied paths as rules")
        func runtime() throws {
            let path = try configuration(
                """
                {"network": {"allowedDomains": ["example.org", "*.example.com"], "deniedDomains": ["evil.example.com"], "allowLocalBinding": true},
                 "filesystem": {"allowWrite": ["WORK/**", "/tmp", "WORK/none"], "denyWrite": ["WORK/b"], "denyRead": ["./secret", "**/.env"],
                                "allowRead": ["OTHER"]}, "ripgrep": {"command": "rg"}}
                """)
            let output = try run(["--config", path])
            #expect(output.lines == ["read: a .git/config out", "write: a new sub/new", "1"], "\(output)")
            #expect(output.errors.contains("filesystem.allowWrite: there is no “\(work)/none”"), "\(output)")
            let reading = try run(["--config", path], "cat '\(other)/file'; : 2>/dev/null > '\(other)/new' || echo refused")
            #expect(reading.lines == ["other", "refused"], "\(reading)")
            // What it denies holds in a directory of another option too.
            let around = try run([
                "--config", try configuration(#"{"filesystem": {"denyRead": ["WORK/secret"]}}"#, "around"), "--grant", work,
            ])
            #expect(around.lines.first == "read: a .env sub/.env .git/config", "\(around)")
            let denied = try run(["--config", try configuration(#"{"filesystem": {"denyRead": ["WORK"]}}"#, "denied"), "--grant", work])
            #expect(denied.status == 1 && denied.errors.contains("filesystem.denyRead"), "\(denied)")
            // What it says about hosts can be replaced.
            #expect(try run(["--config", path, "--network"], "env | grep -c ^https_proxy").status != 2)
        }

        @Test("`--config` takes Codex' permission profiles, with those that they extend")
        func codex() throws {
            let path = try configuration(
                """
                model = "some"
                default_permissions = "edit"
                [permissions.base]
                extends = ":workspace"
                [permissions.base.filesystem]
                ":minimal" = "read"
                "OTHER" = "read"
                [permissions.base.filesystem.":workspace_roots"]
                "secret" = "deny"
                [permissions.edit]
                description = "for edits"
                extends = "base"
                [permissions.edit.filesystem.":workspace_roots"]
                "**/.env" = "deny"
                [permissions.edit.network]
                enabled = true
                [permissions.edit.network.domains]
                "**.example.org" = "allow"
                "evil.example.org" = "deny"
                [permissions.reading]
                extends = ":read-only"
                """)
            let output = try run(["--config", path])
            #expect(output.lines == ["read: a .git/config out", "write: a b new sub/new", "1"], "\(output)")
            let reading = try run(["--config", path, "--config-profile", "reading"])
            #expect(reading.lines == ["read: a secret/key .env sub/.env .git/config link", "write:", "0"], "\(reading)")
            let base = try run(["--config", path, "--config-profile", "base"])
            #expect(base.lines.first == "read: a .env sub/.env .git/config out", "\(base)")
        }

        @Test(
            "A denial holds in every directory that contains it",
            arguments: [
                (#"{"filesystem": {"allowWrite": ["WORK"], "denyRead": ["BASE/**/work/.env", "WORK/.en?/"]}}"#, [".env"], [".git/config"]),
                (#"{"filesystem": {"allowWrite": ["WORK"], "denyRead": ["/**/secret/*"]}}"#, ["secret/key"], [".git/config"]),
                (#"{"filesystem": {"allowWrite": ["WORK/sub", "WORK"], "denyRead": ["**/sub/.env"]}}"#, ["sub/.env"], [".git/config"]),
                (
                    #"{"filesystem": {"allowWrite": ["WORK"], "denyWrite": ["WORK/.git/config"], "allowGitConfig": true}}"#, [],
                    [".git/config", ".git/hooks/new"]
                ),
                (
                    #"{"filesystem": {"allowWrite": ["WORK"], "denyWrite": ["BASE/**/sub/**"], "allowGitConfig": true}}"#, [],
                    ["sub/new", ".git/hooks/new"]
                ),
                (
                    "default_permissions = \"x\"\n[permissions.x.filesystem.\":workspace_roots\"]\n\"./\" = \"write\"\nsub = \"read\"", [],
                    ["sub/new", ".git/config"]
                ),
                (
                    "default_permissions = \"x\"\n[permissions.x.filesystem]\n\"WORK\" = \"write\"\n\"WORK/sub\" = \"read\"", [],
                    ["sub/new", ".git/config"]
                ),
            ] as [(String, [String], [String])])
        func denials(_ text: String, _ unread: [String], _ unwritten: [String]) throws {
            let path = try configuration(text.replacingOccurrences(of: "BASE", with: fixture.base))
            let output = try run(["--config", path])
            let (read, written) = (output.lines.first ?? "", output.lines.dropFirst().first ?? "")
            #expect(read.contains(" a") && written.contains(" a"), "\(output)")
            for file in unread { #expect(!read.contains(" \(file)"), "\(output)") }
            for file in unwritten { #expect(!(written + " ").contains(" \(file) "), "\(output)") }
        }

        @Test("The file of `--config` cannot be changed by way of links either")
        func linkedFile() throws {
            _ = try configuration(#"{"filesystem": {"allowWrite": ["WORK"]}}"#, "source/other/settings.json")
            try Command.shell("cd '\(work)'; ln -s ../other/settings.json l.json; ln -s ../other od").orThrow()
            for name in ["l.json", "od/settings.json"] {
                let output = try run(["--config", "\(work)/\(name)"], "for link in l.json od; do rm -f $link && echo removed $link; done")
                let kept = name.split(separator: "/")[0]
                #expect(!output.text.contains("removed \(kept)") && output.text.contains("removed"), "\(output)")
                try Command.shell("cd '\(work)'; ln -sf ../other/settings.json l.json; ln -sfn ../other od").orThrow()
            }
            try Command.shell("ln '\(other)/settings.json' '\(work)/hard.json'").orThrow()
            let hard = try run(["--config", "\(work)/hard.json"])
            #expect(hard.status == 1 && hard.errors.contains("several names"), "\(hard)")
            let itself = try run([
                "--config",
                try configuration(
                    #"{"filesystem": {"allowWrite": ["BASE/c.json"]}}"#.replacingOccurrences(of: "BASE", with: fixture.base), "c.json"),
            ])
            #expect(itself.status == 2 && itself.errors.contains("--config names it"), "\(itself)")
        }

        @Test("The file of `--config` cannot be changed by the program")
        func ownFile() throws {
            let path = try configuration(#"{"filesystem": {"allowWrite": ["WORK"]}}"#, "source/work/settings.json")
            let output = try run(["--config", path], "if : 2>/dev/null >> settings.json; then echo written; fi; cat settings.json | wc -l")
            #expect(output.lines == ["0"], "\(output)")
            chmod(path, 0o666)
            let open = try run(["--config", path])
            #expect(open.status == 1 && open.errors.contains("others may write to it"), "\(open)")
        }

        @Test(
            "A configuration that cannot be followed is an error with its key, and starts nothing",
            arguments: [
                ("{", "not JSON"), ("{\"filesystem\": {\"allowWrite\": \"x\"}}", "filesystem.allowWrite"), ("{\"sandbox\": 1}", "sandbox"),
                ("{\"network\": {\"httpProxyPort\": 1}}", "network.httpProxyPort"), ("{\"enableWeakerNestedSandbox\": true}", "Nested"),
                ("{\"filesystem\": {\"allowWrite\": [\"WORK/*\"]}}", "filesystem.allowWrite"),
                ("{\"filesystem\": {\"allowWrite\": [\"WORK\"], \"denyRead\": [\"WORK/..\"]}}", "filesystem.denyRead"),
                ("{\"filesystem\": {\"allowWrite\": [\"WORK\"], \"denyWrite\": [\"WORK\"]}}", "filesystem.denyWrite"),
                ("{\"filesystem\": {\"allowWrite\": [\"/\"]}}", "store"), ("{\"network\": {\"allowedDomains\": [\"*\"]}}", "invalid host"),
                ("{\"filesystem\": {\"allowWrite\": [\"WORK\"], \"denyRead\": [\"WORK/**\", \"**/work/**\"]}}", "filesystem.denyRead"),
                ("{\"filesystem\": {\"allowWrite\": [\"WORK/a\"], \"denyRead\": [\"**/a\"]}}", "filesystem.denyRead"),
                ("{\"filesystem\": {\"allowWrite\": [\"WORK\"], \"denyRead\": [\"WORK/**key\"]}}", "name of its own"),
                ("{\"filesystem\": {\"denyRead\": [\"/etc/passwd\"]}}", "shows the system"),
                ("{\"ripgrep\": {}, \"ripgrep\": {}}", "twice"),
                ("{\"network\": {\"allowUnixSockets\": [\"/run/x\"]}}", "network.allowUnixSockets"), ("x =", "not TOML"),
                ("a = 1", "selects no permission profile"), ("default_permissions = \"x\"", "no permission profile “x”"),
                ("default_permissions = \":danger-full-access\"", "danger-full-access"),
                ("default_permissions = \"x\"\n[permissions.x]\nextends = \"x\"", "extends itself"),
                ("default_permissions = \"x\"\n[permissions.x.filesystem]\n\":root\" = \"read\"", ":root"),
                ("default_permissions = \"x\"\n[permissions.x.filesystem]\n\"/x\" = \"all\"", "read, write or deny"),
                ("default_permissions = \"x\"\n[permissions.x.network]\nmode = \"limited\"", "mode"),
                ("default_permissions = \"x\"\n[permissions.x.network]\nproxy_url = \"http://x\"", "proxy_url"),
                ("default_permissions = \":workspace\"\nsandbox_mode = \"read-only\"", "sandbox_mode"),
                ("default_permissions = \"x\"\n[permissions.x]\nfiles = 1", "unknown key “files”"),
            ])
        func badInput(_ text: String, _ message: String) throws {
            let output = try run(["--config", try configuration(text)], "echo ran")
            #expect([1, 2].contains(output.status) && output.text.isEmpty && output.errors.contains(message), "\(output)")
            #expect(try fixture.list().isEmpty)
        }

        @Test("A profile leaves out an optional directory that does not exist")
        func optional() throws {
            let home = try fixture.directory("home")
            try Command.shell(
                """
                mkdir -p "$1/.config/grantfs/profiles" "$1/.tool"
                printf '[[grant]]\\npath = "~/.tool"\\n[[grant]]\\npath = "~/.none"\\noptional = true\\n' > "$1/.config/grantfs/profiles/mine"
                """, home
            ).orThrow()
            let output = try Command.run(
                ["env", "HOME=\(home)", "XDG_CONFIG_HOME=", Programs.grantfs, "run", "--tool", "mine", "--", "ls", "-A", "/grants"],
                environment: fixture.environment, within: 60)
            #expect(output.lines == [".tool"] && output.errors.contains("there is no “\(home)/.none”"), "\(output)")
        }
    }
}
