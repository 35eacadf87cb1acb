import Foundation
import TestSupport
import Testing

extension MountTests {
    /// A program keeps a lock of the kernel's for as long as it likes: it has entries of a directory copied to memory that never comes.
    @Suite(.serialized) struct AHeldKernelLock {
        /// A grant with a probe, another, and memory that never comes.
        struct Mounted {
            let probed: ProbedMount
            let memory: HangingSource
            var fixture: MountFixture { probed.fixture }
            var mountpoint: String { probed.mountpoint }
            static let directories = 6

            init(cache: String) throws {
                probed = try ProbedMount(Situation(plainCaller: true, cache: cache))
                memory = try HangingSource("memory", in: probed.fixture, squashes: true)
                try memory.file("pages", size: 64 * 4096)
                chmod(memory.behind + "/pages", 0o666)
                for number in 0..<Self.directories {
                    let directory = "\(probed.source)/listed\(number)"
                    try Command.shell("mkdir -p \"$1\"; cd \"$1\"; touch a b c d; chmod -R a+rwX .", directory).orThrow()
                }
            }

            func hold(_ directories: [String]) throws -> Attack {
                // The file is opened before its filesystem hangs: only its pages do not come.
                try memory.hang("read")
                return try Attack("held-listing", [memory.directory + "/pages"] + directories, as: probed.situation.caller)
            }
        }

        static let isPossible = Identity.isRoot && Machine.hasFUSE && Machine.plainUser != nil

        @Test(
            "of the root, by somebody without any right to a grant, holds up no revocation, expiry, grant or restoration",
            .enabled(if: isPossible, "needs root, /dev/fuse and a plain user"), arguments: ["shared", "exclusive", "none"])
        func root(cache: String) throws {
            let mounted = try Mounted(cache: cache)
            let (fixture, mountpoint) = (mounted.fixture, mounted.mountpoint)
            let expiring = try fixture.source("expiring")
            try Data(count: 4096).write(to: URL(fileURLWithPath: expiring + "/file"))
            let native = try mounted.probed.native()
            let probe = try mounted.probed.probe(mounted.probed.held)
            let other = try mounted.probed.probe(mounted.probed.other)
            let attack = try mounted.hold([mountpoint])

            // Expiries are seen by the daemon alone.
            try fixture.grant(expiring, name: nil, view: nil, "--expires", "2s")
            #expect(try Command.run(["cat", mountpoint + "/expiring/file"], within: 60).status == 0)
            try fixture.wait(until: "the grant has expired") {
                try Command.run(["cat", mountpoint + "/expiring/file"], within: 60).status != 0
            }
            let revoked = try fixture.revoke("held")
            #expect(revoked[0].isConfirmed)
            ProbedMount.expectRefused(try probe.attempt(), native, "root held, cache=\(cache)", cache: cache)
            ProbedMount.expectNative(try other.attempt(), native, "the other grant")
            try fixture.restore("held")
            #expect(try Probe.call("stat", mounted.probed.held, as: mounted.probed.situation.caller) == "OK")
            try fixture.grantfs("set", "held", "--name", "renamed").orThrow()
            #expect(try Probe.call("stat", mounted.probed.held, as: mounted.probed.situation.caller) == "ENOENT")
            #expect(try Probe.call("stat", mountpoint + "/renamed", as: mounted.probed.situation.caller) == "OK")
            try fixture.grantfs("remove", "renamed").orThrow()
            #expect(try Probe.call("stat", mountpoint + "/renamed", as: mounted.probed.situation.caller) == "ENOENT")
            // And the daemon ends as it is asked to.
            let pid = try fixture.daemon(at: mountpoint)
            kill(pid, SIGKILL)
            try fixture.wait(until: "the daemon is gone") { !Processes.isRunning(pid) }
            attack.end()
        }

        @Test(
            "of a page of a cached listing costs the revocation that listing alone, and it is named",
            .enabled(if: isPossible, "needs root, /dev/fuse and a plain user"),
            arguments: ["shared", "exclusive"])
        func listing(cache: String) throws {
            let mounted = try Mounted(cache: cache)
            let fixture = mounted.fixture
            let native = try mounted.probed.native()
            let probe = try mounted.probed.probe(mounted.probed.held)
            let other = try mounted.probed.probe(mounted.probed.other)
            let names = (0..<Mounted.directories).map { "listed\($0)" }
            let attack = try mounted.hold(names.map { "\(mounted.probed.held)/\($0)" })

            let output = try fixture.grantfs("revoke", "held", "--timeout", "3", "--json")
            #expect(output.status == 3, "\(output)")
            let revoked: [RevocationDocument] = try output.decoded()
            let mount = try #require(revoked.first?.mounts.first)
            #expect(!mount.confirmed)
            #expect(Set(mount.unforgotten ?? []) == Set(names))
            ProbedMount.expectRefused(try probe.attempt(), native, "listings held, cache=\(cache)", cache: cache)
            ProbedMount.expectNative(try other.attempt(), native, "the other grant")
            // Another is withdrawn, and given back, as if nothing were the matter.
            #expect(try fixture.revoke("other")[0].isConfirmed)
            try fixture.restore("other")
            attack.end()
            let again = try fixture.revoke("held", "--timeout", "30")
            #expect(again[0].isConfirmed)
        }

        @Test(
            "keeps no change beside the mount from being told elsewhere", .enabled(if: isPossible, "needs root, /dev/fuse and a plain user")
        )
        func changes() throws {
            let mounted = try Mounted(cache: "shared")
            let (fixture, source) = (mounted.fixture, mounted.probed.source)
            let listed = mounted.probed.held + "/listed0"
            let attack = try mounted.hold([listed])
            let caller = mounted.probed.situation.caller
            for number in 0..<20 {
                // A name that the kernel is told of waits for the directory's lock.
                try Data().write(to: URL(fileURLWithPath: source + "/listed0/new\(number)"))
            }
            // What is not told shows when the kernel's 0.9 s are over. The best of several, because the machine has other work.
            var best = Double.infinity
            for number in 0..<20 where best > 400 {
                let name = "told\(number)"
                #expect(try Probe.call("stat", mounted.probed.other + "/" + name, as: caller) == "ENOENT")
                let begun = Machine.milliseconds
                try Data().write(to: URL(fileURLWithPath: fixture.base + "/source/other/" + name))
                try fixture.wait(until: "a change elsewhere shows") {
                    try Probe.call("stat", mounted.probed.other + "/" + name, as: caller) == "OK"
                }
                best = min(best, Machine.milliseconds - begun)
            }
            #expect(best <= 400)
            #expect(try fixture.revoke("other")[0].isConfirmed)
            attack.end()
            #expect(try fixture.revoke("held")[0].isConfirmed)
        }

        @Test(
            "whose memory is userfaultfd's holds up no revocation either",
            .enabled(if: isPossible && access("/dev/userfaultfd", R_OK | W_OK) == 0, "needs root and /dev/userfaultfd"))
        func userfaultfd() throws {
            let mounted = try ProbedMount(Situation())
            let native = try mounted.native()
            let probe = try mounted.probe(mounted.held)
            try FileManager.default.createDirectory(atPath: mounted.source + "/elsewhere", withIntermediateDirectories: true)
            let attack = try Attack("held-listing", ["userfaultfd", mounted.mountpoint, mounted.held + "/elsewhere"])
            let output = try mounted.fixture.grantfs("revoke", "held", "--timeout", "3", "--json")
            let revoked: [RevocationDocument] = try output.decoded()
            // Whether the kernel keeps so small a listing is its own business.
            #expect(revoked[0].isConfirmed || revoked[0].mounts[0].unforgotten == ["elsewhere"])
            ProbedMount.expectRefused(try probe.attempt(), native, "userfaultfd")
            attack.end()
            #expect(try mounted.fixture.revoke("held")[0].isConfirmed)
        }
    }
}
