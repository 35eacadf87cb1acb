import Foundation
import TestSupport
import Testing

extension MountTests {
    /// Every attack on the machinery at once, in grants of the attackers' own, beside programs that work in a grant which comes and goes, and in one that
    /// nobody touches.
    @Suite(.serialized) struct UnderLoadAndAttacked {
        /// So many operations are tried; fewer where nobody waits for the long tests.
        private static let operations = ProcessInfo.processInfo.environment["GRANTFS_LONG_TESTS"] != nil ? 1_000_000 : 20_000

        @Test(
            "no operation succeeds after a confirmation, and the other grant never fails",
            .enabled(if: AHeldKernelLock.isPossible, "needs root, /dev/fuse and a plain user"), arguments: ["shared", "exclusive"])
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
            let needed = Self.operations / 2_000
            // How much is done in a round depends on the machine, so there are as many as it takes.
            while rounds < 8 || (rounds < needed && Machine.milliseconds - begun < 900_000) {
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

        /// Who attacks, all at once, and what they attack with.
        private struct Attackers {
            private let memory: HangingSource
            private let spaces: [HostileSource]
            private let attacks: [Child]

            init(_ mount: ProbedMount) throws {
                let (fixture, mountpoint, user) = (mount.fixture, mount.mountpoint, mount.situation.caller)
                // What the attackers may use.
                let greedy = try fixture.source("greedy")
                let script =
                    "cd \"$1\"; mkdir l0 l1 l2 l3 locked; touch l0/a l1/a l2/a l3/a f0; for i in $(seq 0 299); do echo text > lease$i; done; chmod -R a+rwX ."
                try Command.shell(script, greedy).orThrow()
                let numbers = try fixture.source("numbers")
                try fixture.mountOther(["mount", "-t", "tmpfs", "-o", "mode=1777,size=64m", "none"], at: numbers)
                for grant in [greedy, numbers] { try fixture.grant(grant) }
                spaces = try ["one", "two"].map { try HostileSource($0, in: fixture, space: .files) }
                for space in spaces { try fixture.grant(space.directory) }
                memory = try HangingSource("memory", in: fixture, squashes: true)
                try memory.file("pages", size: 64 * 4096)
                chmod(memory.behind + "/pages", 0o666)
                try memory.hang("read")

                let pages = memory.directory + "/pages"
                let listed = (0..<4).map { "\(mountpoint)/greedy/l\($0)" }
                let attacker = Programs.attacker(for: user)
                func attack(_ words: String...) throws -> Child { try Child([attacker] + words, identity: user) }
                let ready = [
                    try attack("held-listing", pages, mountpoint), try Child([attacker, "held-listing", pages] + listed, identity: user),
                    try attack("hold_files", mountpoint + "/greedy/f0", "3", "file"),
                    try attack("leases", greedy + "/lease%d", "300"),
                ]
                for child in ready { try child.expect("ready", within: 120) }
                let late = [
                    try attack("callers", "truncate", mountpoint + "/greedy/lease%d", "300"),
                    try attack("lock-chain", mountpoint + "/greedy/f0", "2000"),
                    try attack("lock-many", mountpoint + "/greedy/locked", "2000"),
                    try Child(
                        ["sh", "-c", "while :; do \"$1\" numbers \"$2\" >&2; done 2>/dev/null", "sh", attacker, mountpoint + "/numbers"],
                        identity: user),
                    try Child(["sh", "-c", "while :; do stat -f \"$1\" >&2; done 2>/dev/null", "sh", mountpoint], identity: user),
                ]
                attacks = ready + late
            }

            /// Ends all of them, whatever they hold.
            func end() {
                for attack in attacks { attack.kill() }
                memory.end()
                for space in spaces { space.end() }
            }
        }
    }
}
