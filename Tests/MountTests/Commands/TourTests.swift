import Foundation
import Glibc
import TestSupport
import Testing

extension MountTests {
    /// Pages that show commands and what they print.
    @Suite struct Tours {
        /// A command on a page, and the lines below it.
        struct Shown {
            let command: String
            var output: [String] = []
        }

        static func page(_ name: String) throws -> String {
            let page = URL(fileURLWithPath: #filePath).appendingPathComponent("../../../../" + name).standardized
            return try String(contentsOf: page, encoding: .utf8)
        }

        /// The commands of the blocks that are a console's, in order.
        static func shown(in page: String) -> [Shown] {
            var shown: [Shown] = []
            var isConsole = false
            for line in page.components(separatedBy: "\n") {
                if line.hasPrefix("```") {
                    isConsole = line == "```console"
                } else if isConsole, line.hasPrefix("$ ") {
                    shown.append(Shown(command: String(line.dropFirst(2))))
                } else if isConsole, !shown.isEmpty {
                    shown[shown.count - 1].output.append(line)
                }
            }
            return shown
        }

        /// What differs from one time to the next is the same afterwards.
        static func plain(_ lines: [String], home: String) -> [String] {
            let masks = [
                (NSRegularExpression.escapedPattern(for: home) + "(?![A-Za-z0-9])", "~"), ("/home/ann", "~"), ("\\b[0-9a-f]{32}\\b", "ID"),
                ("\\b[0-9a-f]{12}\\b", "ID"), ("[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9:.]+(Z|[+-][0-9:]+)?", "TIME"),
                ("uid [0-9]+( \\(login [0-9]+\\))?", "uid N"), ("\\b[0-9.]+ ms", "N ms"), ("(pid|by) [0-9]+", "$1 N"),
                ("[0-9]+ (inodes|descriptors)", "N $1"), ("(active|revoked|expired)( +never +)[0-9]+ +[0-9]+ ", "$1 never N N "),
                (" +", " "),
            ]
            return lines.map { line in
                masks.reduce(line) { $0.replacingOccurrences(of: $1.0, with: $1.1, options: .regularExpression) }
                    .trimmingCharacters(in: .whitespaces)
            }.filter { !$0.isEmpty }
        }

        /// Runs the lines after `make run` has done its work without a build, in an empty home.
        /// Returns the output of each.
        static func run(_ lines: [String], as identity: Identity, _ fixture: MountFixture) throws -> (
            home: String, begun: [String], output: [[String]]
        ) {
            let home = try fixture.directory("home")
            let script = try fixture.directory("script") + "/try"
            try FileManager.default.copyItem(
                at: URL(fileURLWithPath: #filePath).appendingPathComponent("../../../../.ci/try").standardized,
                to: URL(fileURLWithPath: script))
            let program = Programs.grantfs(for: identity)
            let typing = #"""
                exec 2>&1
                GRANTFS_TRY_DIR=~/Documents GRANTFS_TRY_AT=~/view sh "$1" "$2" || exit 99
                shift 2; cd
                for line; do printf '\001'; eval "$line"; done
                """#
            var command = ["bash", "-c", typing, "bash", script, program] + lines
            if identity.uid == 0 {
                // Root's store is the machine's, which is none of a test's business.
                command =
                    [
                        "unshare", "-m", "--propagation", "private", "sh", "-c", "mount -t tmpfs -o mode=755 none /var/lib && exec \"$@\"",
                        "sh",
                    ] + command
            }
            let path = URL(fileURLWithPath: program).deletingLastPathComponent().path + ":/usr/sbin:/usr/bin:/sbin:/bin"
            let output = try Command.run(
                ["env", "-u", "XDG_DATA_HOME", "-u", "GRANTFS_STORE", "-u", "XDG_STATE_HOME", "HOME=" + home, "PATH=" + path] + command,
                as: identity, within: 300)
            let parts = output.text.components(separatedBy: "\u{1}")
            guard parts.count == lines.count + 1 else { throw TestFailure("\(output)") }
            let begun = parts[0].components(separatedBy: "\n").dropLast()
            return (home, Array(begun), parts.dropFirst().map { $0.split(separator: "\n").map(String.init) })
        }

        private static let users: [Identity] = (Identity.isRoot ? [.current] : []) + (Machine.usersCanMount ? [Machine.plainUser!] : [])

        @Test(
            "Every command of the tour prints the recorded output",
            .enabled(if: Machine.hasSandboxes, "bubblewrap cannot make a sandbox here"),
            arguments: users, ["docs/tour.md", "README.md"])
        func everyCommand(_ user: Identity, _ name: String) throws {
            let fixture = try MountFixture(owner: user)
            let shown = Self.shown(in: try Self.page(name))
            #expect(shown.count >= 8)
            let (home, begun, output) = try Self.run(shown.map(\.command), as: user, fixture)
            for (shown, printed) in zip(shown, output) {
                let expected = Self.plain(shown.output, home: home)
                #expect(Self.plain(printed, home: home) == expected, "\(user): \(shown.command)\n\(printed.joined(separator: "\n"))")
            }
            guard name == "docs/tour.md" else { return }
            let transcript = TourTranscript(user, home: home)
            let commands = [("make run DIR=~/Documents AT=~/view", begun)] + zip(shown.map(\.command), output)
            let section = transcript.section(commands)
            if TourTranscript.isRecorded { return try transcript.record(section) }
            let recorded = try #require(try transcript.shown(), "Tests/Fixtures/tour-transcript.md has a section for \(user)")
            for (line, (seen, there)) in zip(
                section.components(separatedBy: "\n"), recorded.components(separatedBy: "\n")
            ).enumerated() { #expect(seen == there, "line \(line + 1) of the transcript of \(user)") }
            #expect(section == recorded)
        }

        /// The lines of the blocks without a console in the section about the start of the machine.
        private func boot() throws -> String {
            try #require(try Self.page("docs/guides/service.md").components(separatedBy: "## At boot").last)
        }

        @Test(
            "The fstab line of the service guide is mounted by `mount -a`",
            .enabled(if: Identity.isRoot, Comment(rawValue: Machine.needsRoot)))
        func fstab() throws {
            let lines = try [boot()].map { text in
                try #require(text.components(separatedBy: .newlines).first { $0.contains("/run/ci/view") && $0.contains("allow_other") })
            }
            for line in lines {
                let start = try #require(line.range(of: "ci  /run/ci/view"))
                let entry = String(line[start.lowerBound...].prefix { $0 != "`" })
                let fixture = try MountFixture()
                let output = try Command.run(
                    [
                        "unshare", "-m", "--propagation", "private", "bash", "-euc",
                        """
                        mount -t tmpfs -o mode=755 none /run; mount -t tmpfs -o mode=755 none /var/lib; mkdir -p "$1/sbin" /var/lib/ci
                        sed "s|^PATH=.*|&:$(dirname "$2")|" "$3" >"$1/sbin/mount.grantfs"; chmod 755 "$1/sbin/mount.grantfs"
                        mount -t overlay -o lowerdir="$1/sbin:$(readlink -f /sbin)" overlay "$(readlink -f /sbin)"
                        "$2" grant --view ci /var/lib/ci; printf '%s\\n' "$4" >"$1/fstab"
                        mount -a -T "$1/fstab"; ls /run/ci/view; "$2" unmount /run/ci/view
                        """, "bash", fixture.base, Programs.grantfs, Programs.mountHelper, entry,
                    ], within: 120)
                #expect(output.status == 0 && output.lines.last == "ci", "\(entry)\n\(output)")
            }
        }

        @Test("The service guide names existing units and their mountpoints")
        func units() throws {
            let boot = try boot()
            for (line, kind, place) in [
                ("systemctl enable --now grantfs@ci", "system", "/run/grantfs/ci"),
                ("systemctl --user enable --now grantfs@default", "user", "$XDG_RUNTIME_DIR/grantfs/default"),
            ] {
                #expect(boot.contains(line) && boot.contains(place))
                let unit = try Self.page("mount-helpers/systemd/\(kind)/grantfs@.service")
                let mountpoint = try #require(unit.components(separatedBy: "MOUNTPOINT=").dropFirst().last).prefix { $0 != " " }
                let instance = String(line.drop { $0 != "@" }.dropFirst())
                let expanded = mountpoint.replacingOccurrences(of: "%i", with: instance).replacingOccurrences(
                    of: "%t", with: "$XDG_RUNTIME_DIR")
                #expect(expanded == place)
                #expect(unit.contains("[Install]"))
            }
            // Both use root's store, without a user's grants.
            #expect(boot.contains("sudo grantfs grant --view ci"))
        }
    }
}
