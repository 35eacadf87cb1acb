import Foundation
import Glibc
import TestSupport
import Testing

extension MountTests {
    /// The administrator's policy.
    @Suite(.enabled(if: Identity.isRoot, "needs root")) struct Policy {
        private struct Explained: Decodable {
            let allowed: Bool
            let directory: String
            let rule: String?
            let reason: String
            let uid: UInt32
        }

        private let machine: PolicyMachine
        private let ann = PolicyMachine.ann
        private let ben = PolicyMachine.ben
        private var base: String { machine.fixture.base }

        init() throws { machine = try PolicyMachine() }

        private static let site = """
            never = ["/etc", "{}/srv/secret", "~/.ssh"]

            [[allow]]
            who = ["@staff2"]
            directories = ["~/*", "{}/srv/projects"]

            [[allow]]
            who = ["ben"]
            directories = ["~"]
            views = ["default"]
            access = "read-only"
            """

        private func refused(_ output: Output, _ text: String, _ line: SourceLocation = #_sourceLocation) {
            #expect(output.status == 1 && output.errors.contains(text), "\(output)", sourceLocation: line)
        }

        @Test(
            "A user may grant only what a rule of the policy allows")
        func rules() throws {
            try machine.write(Self.site)
            try machine.grantfs("grant", machine.home(ann) + "/src", as: ann).orThrow()
            try machine.grantfs("grant", base + "/srv/projects", "--view", "other", as: ann).orThrow()
            // The home itself, which `~/*` does not match, another's, and a directory without a
            // rule.
            refused(try machine.grantfs("grant", machine.home(ann), "--name", "h", as: ann), "the store")
            refused(
                try machine.grantfs("grant", machine.home(ben) + "/src", "--name", "b", as: ann),
                "no rule of the administrator allows “ann”")
            refused(try machine.grantfs("grant", "/usr/share", as: ann), "no rule")
            try machine.grantfs("grant", "--read-only", machine.home(ben) + "/src", as: ben).orThrow()
            refused(
                try machine.grantfs("grant", machine.home(ben) + "/src", "--name", "w", as: ben), "10-site.toml:9 allows it read-only alone"
            )
            refused(
                try machine.grantfs("grant", "-r", machine.home(ben) + "/src", "--view", "other", as: ben),
                "10-site.toml:9 allows it in other views alone")
            refused(try machine.grantfs("grant", base + "/srv/projects", as: ben), "no rule")
            #expect(try machine.grantfs("list", "--json", as: ben).orThrow().decoded(as: [GrantDocument].self).count == 1)
        }

        @Test("A directory that is never granted is refused to root under any name")
        func never() throws {
            try machine.write(Self.site)
            try machine.grantfs("grant", base + "/srv/projects").orThrow()
            let inner = base + "/srv/secret/inner"
            for path in [base + "/srv/secret", base + "/srv", "/etc", "/etc/ssl"] {
                refused(try machine.grantfs("grant", path, "--name", "x"), "is never granted")
            }
            try FileManager.default.createDirectory(atPath: inner, withIntermediateDirectories: true)
            refused(try machine.grantfs("grant", inner), "10-site.toml:1")
            try FileManager.default.createSymbolicLink(atPath: base + "/link", withDestinationPath: inner)
            refused(try machine.grantfs("grant", base + "/link"), "10-site.toml:1")
            // A file in it, and what shows it by a mount, itself or inside.
            refused(try machine.grantfs("grant", "/etc/passwd"), "never granted")
            let bind = "mkdir -p '\(base)/outside/a/b' && mount --bind '\(base)/srv/secret' '\(base)/outside/a/b'"
            refused(try machine.grantfs("grant", base + "/outside/a/b", script: bind), "never granted")
            refused(try machine.grantfs("grant", base + "/outside/a", script: bind), "the mount at \(base)/outside/a/b inside it")
            refused(try machine.grantfs("grant", machine.home(ann) + "/.ssh", as: ann), "“~/.ssh” of")
            #expect(try machine.grantfs("list", "--json").orThrow().decoded(as: [GrantDocument].self).count == 1)
        }

        @Test("A link in a user's home extends no rule")
        func links() throws {
            try machine.write("[[allow]]\nwho = [\"*\"]\ndirectories = [\"~/work\"]\n")
            let link = machine.home(ann) + "/work"
            try Command.shell("ln -s \"$1/srv/projects\" \"$2\"", base, link)
            refused(try machine.grantfs("grant", link, as: ann), "no rule")
            try Command.shell("rm \"$2\"; mkdir \"$2\"; chown 61001 \"$2\"", base, link)
            try machine.grantfs("grant", link, as: ann).orThrow()
            // ann's home is the root directory, and then ben's.
            try machine.write("[[allow]]\nwho = [\"*\"]\ndirectories = [\"~\"]\n")
            for home in ["/", machine.home(ben)] {
                let script = "sed -i 's|^ann:.*|ann:x:61001:61001::\(home):/bin/sh|' /etc/passwd"
                refused(try machine.grantfs("grant", base + "/srv/projects", "--name", "p", as: ann, script: script), "no rule")
            }
        }

        @Test("No command widens a grant beyond the policy")
        func widening() throws {
            try machine.write("[[allow]]\nwho = [\"*\"]\ndirectories = [\"~\"]\n")
            let source = machine.home(ann) + "/src"
            let rules = ["--hide", "a", "--protect", "b"]
            try machine.run([Programs.grantfs(for: ann), "grant", source, "--read-only", "--expires", "1h"] + rules, as: ann).orThrow()
            try machine.grantfs("grant", source, "--name", "gone", as: ann).orThrow()
            try machine.grantfs("revoke", "gone", as: ann).orThrow()
            try machine.write(
                "[[allow]]\nwho = [\"*\"]\ndirectories = [\"~\"]\naccess = \"read-only\"\n[[allow]]\nwho = [\"ben\"]\ndirectories=[\"/\"]")
            refused(try machine.grantfs("set", "src", "--access", "read-write", as: ann), "read-only alone")
            try machine.grantfs("set", "src", "--expires", "2h", as: ann).orThrow()
            refused(try machine.grantfs("restore", "gone", as: ann), "read-only alone")
            try machine.write("")
            for change in [
                ["--expires", "9h"], ["--expires", "never"], ["--no-rules"], ["--hide", ""], ["--hide", "x"], ["--protect", "c"],
                ["--hide", "a", "--hide", "!a/b"],
            ] {
                refused(try machine.run([Programs.grantfs(for: ann), "set", "src"] + change, as: ann), "no rule")
            }
            let file = base + "/f.grants"
            try Data("[[grant]]\npath = \"\(source)\"\nname = \"new\"\n".utf8).write(to: URL(fileURLWithPath: file))
            refused(try machine.grantfs("apply", "--yes", file, as: ann), "may not be granted")
            refused(try machine.grantfs("apply", "--dry-run", file, as: ann), "may not be granted")
            refused(try machine.grantfs("run", "--grant", source, "--", "true", as: ann), "may not be granted")
            // Its directory is replaced by another.
            try Command.shell("mv \"$1\" \"$1.old\"; rm -r \"$1.old\"; mkdir \"$1\"; chown 61001:61001 \"$1\"", source)
            refused(try machine.grantfs("repair", "src", "--confirm", source, as: ann), "may not be granted")
            let listed = try machine.grantfs("list", as: ann).orThrow()
            #expect(listed.errors.contains("“src” in the view “default” could not be granted any more"), "\(listed)")
            let doctor = try machine.grantfs("doctor", as: ann)
            #expect(doctor.text.contains("policy: the grant “src”"), "\(doctor)")
            try machine.grantfs("set", "src", "--expires", "1m", as: ann).orThrow()
            try machine.grantfs("set", "src", "--hide", "a", "--hide", "c", as: ann).orThrow()
            try machine.grantfs("revoke", "src", as: ann).orThrow()
            try machine.grantfs("remove", "src", as: ann).orThrow()
        }

        @Test("An invalid rule of the policy allows nothing, and the other rules go on")
        func invalidRule() throws {
            try machine.write("[[allow]]\nwho = [\"ben\"]\ndirektories = [\"~/*\"]\n[[allow]]\nwho = [\"ann\"]\ndirectories = [\"~/*\"]\n")
            try machine.grantfs("grant", machine.home(ann) + "/src", as: ann).orThrow()
            let output = try machine.grantfs("grant", machine.home(ben) + "/src", as: ben)
            refused(output, "10-site.toml:3")
            #expect(output.errors.contains("root has to mend the policy"), "\(output)")
            let check = try machine.grantfs("policy", "check")
            #expect(check.status == 1 && check.errors.contains("10-site.toml:3"), "\(check)")
            try machine.write("never = [\"etc\"]\n[[allow]]\nwho = [\"ann\"]\ndirectories = [\"~/*\"]\n")
            refused(try machine.grantfs("grant", machine.home(ann) + "/src", "--name", "n", as: ann), "root has to mend the policy")
        }

        @Test(
            "An invalid or untrusted policy refuses every new grant and is named"
        )
        func broken() throws {
            let source = machine.home(ann) + "/src"
            try machine.grantfs("grant", source, as: ann).orThrow()
            func grant(_ text: String, script: String = "true", _ line: SourceLocation = #_sourceLocation) throws {
                for identity in [Identity.current, ann] {
                    let output = try machine.grantfs("grant", source, "--name", "n", as: identity, script: script)
                    refused(output, text, line)
                }
            }
            try machine.write("never = [\"/etc\"]\n\nallow = 3\n")
            try grant("policy.d/10-site.toml:3: “allow” is a list")
            try machine.write("never = [\n")
            try grant("this is not TOML")
            for (mode, owner) in [(mode_t(0o664), Identity.current), (0o646, .current), (0o644, ann)] {
                try machine.write("[[allow]]\nwho = [\"*\"]\ndirectories = [\"/\"]\n", mode: mode, owner: owner)
                try grant("policy.d/10-site.toml cannot be trusted")
            }
            try machine.write("[[allow]]\nwho = [\"*\"]\ndirectories = [\"/\"]\n")
            try grant("policy.d cannot be trusted", script: "chmod 777 /etc/grantfs/policy.d")
            try Command.run(["chmod", "755", machine.policies])
            try grant("/etc/grantfs cannot be trusted", script: "chown 61001 /etc/grantfs")
            try Command.run(["chown", "0", base + "/etc/grantfs"])
            try grant(
                "policy.d cannot be trusted: it is a link", script: "mv /etc/grantfs/policy.d /etc/p; ln -s /etc/p /etc/grantfs/policy.d"
            )
            try Command.shell("rm \"$1\"; mv \"$2\" \"$1\"", machine.policies, base + "/etc/p")
            // What ann may not read says nothing to her, and so allows nothing.
            try Command.run(["chmod", "600", machine.policies + "/10-site.toml"])
            refused(try machine.grantfs("grant", source, "--name", "n", as: ann), "cannot be read")
            try machine.grantfs("grant", base + "/srv/projects", "--name", "n").orThrow()
            // Existing access is withdrawn nevertheless.
            try machine.grantfs("revoke", "src", as: ann).orThrow()
            try Command.shell("rm \"$1\"/*", machine.policies)
            try machine.grantfs("restore", "src", as: ann).orThrow()
        }

        @Test("`policy explain` names the rule that decides")
        func explaining() throws {
            #expect(try machine.grantfs("policy", "check").orThrow().text.contains("there is no policy"))
            #expect(try machine.grantfs("policy", "explain", "/etc").orThrow().text.contains("root may grant /etc"))
            try machine.write(Self.site)
            func explain(_ words: String..., status: Int32) throws -> Explained {
                let output = try machine.run([Programs.grantfs(for: ann), "policy", "explain", "--json"] + words)
                #expect(output.status == status, "\(output)")
                return try output.decoded()
            }
            let place = "/etc/grantfs/policy.d/10-site.toml"
            let source = machine.home(ann) + "/src"
            let allowed = try explain(source, "--user", "ann", status: 0)
            #expect(allowed.allowed && allowed.rule == "\(place):5" && allowed.directory == source && allowed.uid == 61_001)
            #expect(try explain(source, "--user", "61002", status: 1).rule == nil)
            #expect(try explain("/etc/ssl", "--user", "ben", status: 1).rule == "\(place):1")
            #expect(try explain(machine.home(ben), "--user", "ben", status: 1).reason.contains("never granted"))
            let ssh = try explain(machine.home(ben) + "/src", "--user", "ben", "-r", status: 0)
            #expect(ssh.rule == "\(place):9")
            let people = try machine.grantfs("policy", "explain", source, "--user", "ann").orThrow()
            #expect(people.text.contains("ann may grant \(source) to the view “default”, read-write\n  \(place):5: "), "\(people)")
            #expect(try machine.grantfs("policy", "check").orThrow().errors == "")
            let file = base + "/odd.toml"
            try Data("[[allow]]\nwho = [\"nobodyatall\", \"@none\"]\ndirectories = [\"\(base)/no\", \"/bin\"]\n".utf8).write(
                to: URL(fileURLWithPath: file))
            let odd = try machine.grantfs("policy", "check", file).orThrow()
            for text in [
                "\(file):1: there is no user “nobodyatall”", "no group “none”", "there is no “\(base)/no”", "“/bin” allows nothing: a link",
            ] {
                #expect(odd.errors.contains(text), "\(odd)")
            }
            try machine.write("never = 1")
            refused(try machine.grantfs("policy", "check", as: ann), "\(place):1: “never” is a list")
            refused(try machine.grantfs("policy", "explain", source), "\(place):1")
        }

        @Test("A refusal by the policy is written to the journal with its rule")
        func journal() throws {
            try machine.write(Self.site)
            let socket = try machine.fixture.directory("journal") + "/socket"
            let journal = try DatagramSocket(at: socket)
            chmod(socket, 0o666)
            let script =
                "mount -t tmpfs tmpfs /run && mkdir -p /run/systemd/journal && mount --bind '\(base)/journal' /run/systemd/journal"
            refused(try machine.grantfs("grant", machine.home(ann) + "/.ssh", "--view", "ci", as: ann, script: script), "never granted")
            let lines = try #require(journal.next(), "it is in the journal").split(separator: "\n")
            for line in [
                "GRANTFS_EVENT=refused", "GRANTFS_UID=61001", "GRANTFS_VIEW=ci", "GRANTFS_ACCESS=read-write", "GRANTFS_PROGRAM=grantfs",
                "GRANTFS_DIRECTORY=\(machine.home(ann))/.ssh", "GRANTFS_POLICY=/etc/grantfs/policy.d/10-site.toml:1", "PRIORITY=5",
                "MESSAGE_ID=a4a4c1c0f0f94c53a1f0f6c3d7f2b6e5",
            ] {
                #expect(lines.contains(Substring(line)), "\(line): \(lines)")
            }
        }

        @Test("The example policy is valid and grants only what its rules allow")
        func example() throws {
            let example = URL(fileURLWithPath: #filePath).deletingLastPathComponent().path + "/../../../mount-helpers/policy.toml.example"
            try machine.write(try String(contentsOfFile: example, encoding: .utf8))
            try machine.grantfs("policy", "check", as: ben).orThrow()
            refused(try machine.grantfs("grant", "/etc", as: ben), "never granted")
            refused(try machine.grantfs("grant", "/usr/share", as: ben), "no rule")
            refused(try machine.grantfs("grant", machine.home(ben) + "/.ssh", as: ben), "never granted")
            try machine.grantfs("grant", machine.home(ben) + "/src", as: ben).orThrow()
        }
    }
}
