import Foundation
import TestSupport
import Testing

extension MountTests {
    @Suite("The doctor") struct Doctor {
        private struct Report: Decodable {
            struct Finding: Decodable {
                let check: String
                let level: String
                let message: String
                let advice: String?
            }
            let healthy: Bool
            let findings: [Finding]

            func problems(_ check: String) -> [Finding] { findings.filter { $0.check == check && $0.level == "problem" } }
        }

        private let fixture: MountFixture

        init() throws { fixture = try MountFixture() }

        /// The report about this fixture's store, with its exit status.
        private func examine(_ environment: [String: String] = [:]) throws -> Report {
            let output = try Command.run(
                [Programs.grantfs, "doctor", "--json"], environment: fixture.environment.merging(environment) { $1 })
            let report = try output.decoded(as: Report.self)
            #expect(output.status == (report.healthy ? 0 : 1), "\(output)")
            #expect(report.healthy == !report.findings.contains { $0.level == "problem" })
            #expect(report.findings.allSatisfy { $0.level != "problem" || $0.advice?.isEmpty == false }, "each problem has a remedy")
            return report
        }

        @Test("The doctor reports no problem with healthy grants and mounts")
        func healthy() throws {
            let before = try examine()
            #expect(before.problems("store").isEmpty && !FileManager.default.fileExists(atPath: fixture.store))
            try fixture.grant(try fixture.source("a"))
            try fixture.mount()
            let report = try examine()
            for check in ["device", "openat2", "store", "grants"] {
                #expect(report.findings.contains { $0.check == check && $0.level == "ok" }, "\(check): \(report.findings)")
            }
            #expect(report.findings.contains { $0.check == "kernel" && $0.message.contains("Linux ") })
            #expect(report.findings.count { $0.check == "identities" } == 1)
        }

        @Test("The doctor names a dead mount and advice that removes it")
        func deadMount() throws {
            try fixture.grant(try fixture.source("a"))
            let mountpoint = try fixture.mount()
            #expect(try examine().problems("mounts").filter { $0.message.contains(mountpoint) }.isEmpty)
            try fixture.killDaemon(at: mountpoint)
            let found = try examine().problems("mounts").filter { $0.message.contains(mountpoint) }
            #expect(found.count == 1 && found[0].advice?.contains("umount -l \(mountpoint)") == true, "\(found)")
            try Command.run(Identity.isRoot ? ["umount", "-l", mountpoint] : ["fusermount3", "-uz", mountpoint]).orThrow()
            try fixture.wait(until: "the mount is gone") {
                try examine().problems("mounts").filter { $0.message.contains(mountpoint) }.isEmpty
            }
        }

        @Test("The doctor names a mount whose daemon does not answer")
        func hangingDaemon() throws {
            try fixture.grant(try fixture.source("a"))
            let mountpoint = try fixture.mount()
            let daemon = try fixture.daemon(at: mountpoint)
            kill(daemon, SIGSTOP)
            defer { kill(daemon, SIGCONT) }
            let found = try examine().problems("mounts").filter { $0.message.contains(mountpoint) }
            #expect(found.count == 1 && found[0].advice?.contains("kill \(daemon)") == true, "\(found)")
        }

        @Test("The doctor names grants whose directory is missing or replaced")
        func staleGrants() throws {
            let gone = try fixture.source("gone")
            let replaced = try fixture.source("replaced")
            try fixture.grant(gone)
            try fixture.grant(replaced)
            try FileManager.default.removeItem(atPath: gone)
            try FileManager.default.moveItem(atPath: replaced, toPath: fixture.base + "/outside/there")
            try FileManager.default.removeItem(atPath: fixture.base + "/outside/there")
            // Others come first, so that the inode is not used again.
            _ = try fixture.source("first")
            _ = try fixture.source("second")
            _ = try fixture.source("replaced")
            let found = try examine().problems("grants").map(\.message)
            #expect(found.count == 2 && found.contains { $0.contains("“gone”") && $0.contains("nowhere") }, "\(found)")
            #expect(found.contains { $0.contains("“replaced”") && $0.contains("another directory") }, "\(found)")
        }

        @Test("The doctor names a damaged store")
        func damagedStore() throws {
            try fixture.grant(try fixture.source("a"))
            try Data("no database".utf8).write(to: URL(fileURLWithPath: fixture.store + "/grants.sqlite"))
            let report = try examine()
            #expect(!report.healthy && report.problems("store").count == 1, "\(report.findings)")
        }

        @Test("The doctor names a missing package")
        func programs() throws {
            let report = try examine(["PATH": "/nowhere"])
            let named = Dictionary(report.findings.map { ($0.check, $0) }) { first, _ in first }
            #expect(named["bubblewrap"]?.level == "note" && named["bubblewrap"]?.advice == "install the package bubblewrap")
            // libfuse has a place of its own for it.
            guard access("/usr/bin/fusermount3", X_OK) != 0 else {
                #expect(named["fusermount3"]?.message.contains("/usr/bin/fusermount3") == true, "\(report.findings)")
                return
            }
            #expect(named["fusermount3"]?.level == (Identity.isRoot ? "note" : "problem"))
            #expect(named["fusermount3"]?.advice == "install the package fuse3")
        }

        @Test(
            "A user mounts and unmounts with a fusermount3 outside the PATH",
            .enabled(if: Machine.usersCanMount, "plain users cannot mount here"))
        func helperOutsideOfPath() throws {
            let user = try #require(Machine.plainUser)
            guard access("/usr/bin/fusermount3", X_OK) == 0 else { return }
            let fixture = try MountFixture(owner: user)
            try fixture.grant(try fixture.source("docs"))
            fixture.switches = ["PATH": "/nowhere"]
            defer { fixture.switches = [:] }
            let place = try fixture.mount()
            try fixture.grantfs("unmount", place).orThrow()
            #expect(fixture.mountpoints.isEmpty)
        }

        @Test("The doctor tells a user who cannot open /dev/fuse", .enabled(if: Identity.isRoot && Machine.offers("unshare"), "needs root"))
        func closedDevice() throws {
            let user = try #require(Machine.plainUser)
            let program = fixture.base + "/grantfs"
            try Command.run(["cp", Programs.grantfs, program]).orThrow()
            // In a mount namespace of its own, so that other processes keep the device.
            let output = try Command.shell(
                """
                exec unshare -m sh -c 'touch "$1/closed"; chmod 600 "$1/closed"; mount --bind "$1/closed" /dev/fuse
                exec setpriv --reuid="$2" --regid="$3" --clear-groups "$1/grantfs" --store "$1/own" doctor --json' sh "$1" "$2" "$3"
                """, fixture.base, "\(user.uid)", "\(user.gid)")
            let report = try output.decoded(as: Report.self)
            #expect(output.status == 1 && report.problems("device").count == 1, "\(output)")
        }

        /// In a mount namespace of its own, where /usr/local and the rest of where units lie are the test's.
        @Test(
            "The doctor names shadowed units and a unit without its program",
            .enabled(if: Identity.isRoot && access("/usr/lib/systemd", F_OK) == 0, "needs root, and a place for units"))
        func shadowed() throws {
            try Command.run(["cp", Programs.grantfs, fixture.base + "/grantfs"]).orThrow()
            func report(_ script: String) throws -> [Report.Finding] {
                let output = try Command.shell(
                    """
                    exec unshare -m sh -euc 'cd "$1"; rm -rf local; mkdir -p local/bin local/lib/systemd/system
                    for place in /etc/systemd /run/systemd; do [ ! -d $place ] || mount -t tmpfs tmpfs $place; done
                    mount --bind local /usr/local; units=/usr/lib/systemd
                    mount -t tmpfs tmpfs $units; mkdir $units/system
                    unit() { printf "[Service]\\nExecStart=%s/grantfs mount\\n" "$1"; }
                    unit /usr/bin >$units/system/grantfs@.service
                    \(script)
                    PATH=/usr/local/bin:$PATH "$1/grantfs" --store "$1/own" doctor --json || test $? = 1' sh "$1"
                    """, fixture.base)
                return try output.decoded(as: Report.self).findings.filter { ["unit", "program"].contains($0.check) }
            }
            let gone = try report("mkdir -p /usr/local/none; unit /usr/local/none >/usr/lib/systemd/system/grantfs@.service").filter {
                $0.check == "unit"
            }
            #expect(gone.count == 1 && gone[0].level == "problem" && gone[0].message.contains("which is not there"), "\(gone)")
            let local = "cp \"$1/grantfs\" /usr/local/bin/grantfs; unit /usr/local/bin >/usr/local/lib/systemd/system/grantfs@.service"
            let shadowed = try report(local).filter { $0.check == "unit" }
            #expect(
                shadowed.count == 1 && shadowed[0].level == "problem"
                    && shadowed[0].message.hasPrefix("/usr/local/lib/systemd/system/grantfs@.service, which starts /usr/local/bin/grantfs,")
                    && shadowed[0].message.contains("/usr/lib/systemd/system/grantfs@.service"), "\(shadowed)")
            let alone = try report(local + "; rm /usr/lib/systemd/system/grantfs@.service").filter { $0.check == "unit" }
            #expect(alone.map(\.level) == ["ok"], "\(alone)")
            let two = try report("\(local); mkdir /usr/local/sbin; cp \"$1/grantfs\" /usr/local/sbin/grantfs; PATH=/usr/local/sbin:$PATH")
            #expect(
                two.contains { $0.check == "program" && $0.level == "note" && $0.message.contains("/usr/local/sbin/grantfs") }, "\(two)")
        }
    }
}
