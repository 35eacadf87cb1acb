import Foundation
import TestSupport
import Testing

extension MountTests {
    /// Every attack at once, in grants of the attackers' own, beside programs that work in a grant
    /// that comes and goes, and in an unchanged one.
    @Suite(.serialized) struct AttackedUnderLoadTests {
        static let isLong = ProcessInfo.processInfo.environment["GRANTFS_LONG_TESTS"] != nil

        @Test(
            "A confirmed revocation stops every operation despite concurrent attacks",
            .enabled(if: AHeldKernelLock.isPossible && isLong, "needs root, /dev/fuse, a plain user, and GRANTFS_LONG_TESTS"),
            arguments: ["shared", "exclusive"])
        func everythingAtOnce(cache: String) throws {
            let mount = try ProbedMount(Situation(plainCaller: true, cache: cache))
            let attackers = try Attackers(mount)
            defer { attackers.end() }
            let load = try Load(below: mount.held)
            let other = try Load(below: mount.other)
            let begun = Machine.milliseconds
            var (results, bystanders): ([WorkerResult], [WorkerResult]) = ([], [])
            var worst = 0.0
            var rounds = 0
            // A million operations take a few seconds.
            while rounds < 8 || Machine.milliseconds - begun < 60_000 {
                rounds += 1
                usleep(30_000)
                let asked = Machine.milliseconds
                let revoked = try mount.fixture.revoke("held")
                worst = max(worst, Machine.milliseconds - asked)
                try load.revoked()
                #expect(revoked[0].isConfirmed)
                usleep(20_000)
                try load.granted()
                try mount.fixture.restore("held")
            }
            try mount.fixture.revoke("held")
            try load.revoked()
            usleep(100_000)
            results = try load.stop()
            bystanders = try other.stop()
            for worker in results {
                #expect(worker.leaked == 0, "\(worker.worker) went on after a confirmed revocation")
                #expect(worker.odd == 0, "\(worker.worker) had \(worker.oddError)")
            }
            for worker in bystanders {
                #expect(worker.failed == 0, "\(worker.worker) of the other grant failed with \(worker.failedWith)")
                #expect(worker.longestMilliseconds < 9000, "\(worker.worker) of the other grant waited")
            }
            let tried = (results + bystanders).reduce(0) { $0 + $1.succeeded + $1.refused }
            let waited = bystanders.map(\.longestMilliseconds).max() ?? 0
            print(
                "cache=\(cache): \(rounds) revocations, the longest \(Int(worst)) ms with its command, \(tried) operations, 0 after a confirmation; "
                    + "the other grant waited \(Int(waited)) ms at the most")
        }

        /// The attackers, all at once, and their means.
        private struct Attackers {
            private let memory: HangingSource
            private let spaces: [HostileSource]
            private let attacks: [Child]

            init(_ mount: ProbedMount) throws {
                let (fixture, mountpoint, user) = (mount.fixture, mount.mountpoint, mount.situation.caller)
                // Each attacker has a grant of its own to use up.
                for (name, script) in [
                    ("greedy", "touch f0"), ("listed", "mkdir l0 l1 l2 l3; touch l0/a l1/a l2/a l3/a"), ("chain", "touch f0"),
                    ("locked", ":"),
                    ("leased", "for i in $(seq 0 299); do echo text > lease$i; done"),
                ] {
                    let source = try fixture.source(name)
                    // Only a file's owner gets a lease.
                    try Command.shell("cd \"$1\"; \(script); chown -R \(user.uid):\(user.gid) .", source).orThrow()
                    try fixture.grant(source)
                }
                let numbers = try fixture.source("numbers")
                try fixture.mountOther(["mount", "-t", "tmpfs", "-o", "mode=1777,size=64m", "none"], at: numbers)
                try fixture.grant(numbers)
                spaces = try ["one", "two"].map { try HostileSource($0, in: fixture, space: .files) }
                for space in spaces { try fixture.grant(space.directory) }
                memory = try HangingSource("memory", in: fixture, squashes: true)
                // A file for each: another open would wait for its locks.
                for name in ["listed", "root"] {
                    try memory.file(name, size: 64 * 4096)
                    chmod(memory.behind + "/" + name, 0o666)
                }
                try memory.hang("read")

                let pages = memory.directory
                let listed = (0..<4).map { "\(mountpoint)/listed/l\($0)" }
                let attacker = Programs.attacker(for: user)
                func attack(_ words: String...) throws -> Child { try Child([attacker] + words, identity: user) }
                // One after the other: where the root's lock is held, names there may have to wait, as in every directory.
                var holding: [Child] = []
                for (what, start) in [
                    ("listings' pages", { try Child([attacker, "held-listing", pages + "/listed"] + listed, identity: user) }),
                    ("leases", { try attack("leases", fixture.base + "/source/leased/lease%d", "300") }),
                    ("descriptors", { try attack("hold_files", mountpoint + "/greedy/f0", "3", "file") }),
                    ("the root's lock", { try attack("held-listing", pages + "/root", mountpoint) }),
                ] as [(String, () throws -> Child)] {
                    let child = try start()
                    do { try child.expect("ready", within: 120) } catch { throw TestFailure("\(what): \(error)") }
                    holding.append(child)
                }
                let late = [
                    try attack("callers", "truncate", mountpoint + "/leased/lease%d", "300"),
                    try attack("lock-chain", mountpoint + "/chain/f0", "2000"),
                    try attack("lock-many", mountpoint + "/locked", "2000"),
                    try Child(
                        ["sh", "-c", "while :; do \"$1\" numbers \"$2\" >&2; done 2>/dev/null", "sh", attacker, mountpoint + "/numbers"],
                        identity: user),
                    try Child(["sh", "-c", "while :; do stat -f \"$1\" >&2; done 2>/dev/null", "sh", mountpoint], identity: user),
                ]
                attacks = holding + late
            }

            /// Ends all of them with everything they hold.
            func end() {
                for attack in attacks { attack.kill() }
                memory.end()
                for space in spaces { space.end() }
            }
        }
    }
}
