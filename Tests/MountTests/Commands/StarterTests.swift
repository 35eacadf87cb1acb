import Foundation
import TestSupport
import Testing

extension MountTests {
    /// What a process has from its starter, and what of it must change nothing of a mount.
    @Suite struct StarterTests {
        /// Runs grantfs in a shell that has set something before.
        private func grantfs(_ setting: String, _ fixture: MountFixture, _ arguments: String...) throws -> Output {
            try Command.run(
                ["sh", "-c", setting + "; exec \"$@\"", "sh", Programs.grantfs(for: fixture.owner)] + arguments, as: fixture.owner,
                environment: fixture.environment)
        }

        @Test("The umask of the starter affects neither created files nor the store", arguments: ["077", "000"])
        func umask(mask: String) throws {
            let fixture = try MountFixture()
            let source = try fixture.source("docs")
            let (setting, mountpoint) = ("umask " + mask, fixture.base + "/new/mount")
            try FileManager.default.createDirectory(atPath: mountpoint, withIntermediateDirectories: true)
            try grantfs(setting, fixture, "grant", source).orThrow()
            try grantfs(setting, fixture, "mount", "default", mountpoint).orThrow()
            let made = try Command.shell(
                """
                cd "$1/docs"; umask 022; touch a; mkdir b; umask 027; touch c; mkdir d; stat -c '%n %a' a b c d
                """, mountpoint)
            #expect(made.lines == ["a 644", "b 755", "c 640", "d 750"], "\(made)")
            try grantfs(setting, fixture, "revoke", "docs").orThrow()
            try grantfs(setting, fixture, "restore", "docs").orThrow()
            let open = try Command.run(["find", fixture.store, "-perm", "/077", "!", "-type", "s", "!", "-type", "l"]).orThrow()
            // The directory is the only way there.
            #expect(!open.lines.contains(fixture.store), "\(open)")
            #expect(try Command.run(["stat", "-c", "%a", fixture.store]).trimmed == "700")
        }

        @Test("Output is unchanged under any locale of the starter", arguments: ["de_DE.UTF-8", "xx_YY"])
        func language(locale: String) throws {
            let fixture = try MountFixture()
            let source = try fixture.source("docs")
            let setting = "export LC_ALL=\(locale) LANG=\(locale) LANGUAGE=de"
            let refused = try grantfs(setting, fixture, "grant", source + "/nothing")
            #expect(
                refused.status == 1 && refused.errors.hasPrefix("grantfs: ") && refused.errors.contains("there is no such directory"),
                "\(refused)")
            try grantfs(setting, fixture, "grant", source, "--expires", "90m").orThrow()
            try grantfs(setting, fixture, "mount", "default", fixture.base + "/mount").orThrow()
            let revoked = try grantfs(setting, fixture, "revoke", "docs", "--json").decoded(as: [RevocationDocument].self)
            #expect(revoked.count == 1 && revoked[0].isConfirmed)
            let shown = try grantfs(setting, fixture, "metrics").orThrow()
            let values = shown.lines.filter { !$0.hasPrefix("#") }.compactMap { $0.split(separator: " ").last }
            #expect(!values.isEmpty && values.allSatisfy { Double($0) != nil }, "\(shown)")
        }

        /// Where the kernel promises no more memory than there is (vm.overcommit_memory=2), all that could be written counts, touched or not.
        @Test("A daemon reserves less than half a gigabyte of memory")
        func promisedMemory() throws {
            let fixture = try MountFixture()
            try fixture.grant(try fixture.source("docs"))
            let daemon = try fixture.daemon(at: try fixture.mount())
            let status = try String(contentsOfFile: "/proc/\(daemon)/status", encoding: .utf8).split(separator: "\n")
            let line = try #require(status.first { $0.hasPrefix("VmData:") })
            let kilobytes = try #require(line.split(whereSeparator: \.isWhitespace).dropFirst().first.flatMap { Int($0) })
            // Stacks, for the most part.
            #expect(kilobytes < 512 << 10)
        }

        /// As a member of a group that has become this user without a new program, as servers do: /proc hides even from others of the same user what it is.
        private static let member = """
            import os, sys
            place, uid, gid = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
            os.chdir(place)
            os.chmod('.', 0o777)
            os.close(os.open('f', os.O_CREAT | os.O_WRONLY, 0o644))
            os.chown('f', uid, 34567)
            os.chmod('f', 0o2644)
            os.setgroups([34567])
            os.setresgid(gid, gid, gid)
            os.setresuid(uid, uid, uid)
            os.chown('f', -1, 34567)
            print(oct(os.stat('f').st_mode))
            """

        /// In a mount namespace of its own, so that other processes still see all of /proc.
        @Test(
            "A caller keeps its groups although /proc hides it",
            .enabled(if: Identity.isRoot && Machine.plainUser != nil, "needs root and a plain user to act as"))
        func hiddenProcesses() throws {
            let fixture = try MountFixture()
            let user = try #require(Machine.plainUser)
            try fixture.grant(try fixture.source("docs"))
            let output = try Command.shell(
                """
                exec unshare -m bash -euc 'mount -t proc -o hidepid=2 proc /proc; export GRANTFS_STORE=$1/store
                "$2" mount default "$1/mount" -o allow_other
                for place in native mount/docs; do python3 -c "$5" "$1/$place" "$3" "$4"; done
                umount "$1/mount"' bash "$@"
                """, fixture.base, Programs.grantfs, "\(user.uid)", "\(user.gid)", Self.member)
            // Outside the group the bit would be cleared.
            #expect(output.status == 0 && output.lines == ["0o102644", "0o102644"], "\(output)")
        }
    }
}
