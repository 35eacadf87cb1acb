import Foundation
import Glibc
import TestSupport
import Testing

extension MountTests {
    /// Threads that open, read, write, map, list, rename and create while the grant goes and comes.
    @Suite struct RevocationUnderLoadTests {
        @Test(
            "No operation succeeds after a revocation under load",
            arguments: [Situation(), Situation(cache: "exclusive"), Situation(cache: "exclusive", prunes: true)])
        func revokeAndRestore(_ situation: Situation) throws {
            var idle: [String] = []
            // On a busy machine a thread may miss its turn in one of the two states. Then the
            // rounds run again, with more time.
            for patience in [1, 10, 40] {
                idle = try rounds(situation, patience)
                if idle.isEmpty { break }
            }
            #expect(idle.isEmpty, "these never had a turn while the grant was there, or while it was not")
        }

        @Test(
            "No operation succeeds after a revocation while daemons die",
            arguments: ["shared", "exclusive", "none"], [Succession.Way.death, .deathOnOldKernel])
        func whileDaemonsDie(cache: String, _ way: Succession.Way) throws {
            let mount = try ProbedMount(
                Situation(cache: cache), options: ",recover",
                switches: ["GRANTFS_TEST_CRASHES": "100000"]
                    .merging(way == .deathOnOldKernel ? ["GRANTFS_TEST_NO_RESEND": "1"] : [:]) { $1 })
            let load = try Load(below: mount.held, daemonsDie: true)
            let other = try Load(below: mount.other, daemonsDie: true)
            let killer = Killer(mount)
            defer { _ = killer.stop() }
            for _ in 0..<(AttackedUnderLoadTests.isLong ? 200 : 8) {
                pause(milliseconds: 60)
                let revoked = try mount.fixture.revoke("held")
                try load.revoked()
                #expect(revoked[0].isConfirmed)
                pause(milliseconds: 30)
                try load.granted()
                try mount.fixture.restore("held")
            }
            try mount.fixture.revoke("held")
            try load.revoked()
            pause(milliseconds: 300)
            let deaths = killer.stop()
            let (results, bystanders) = (try load.stop(), try other.stop())
            for worker in results { #expect(worker.leaked == 0, "\(worker.worker) went on after a confirmed revocation") }
            let writes = ["held-write", "fresh-write"]
            // Where the kernel cannot be asked again, data that was on its way is not had again.
            let isOld = way == .deathOnOldKernel || Machine.kernel < (6, 9)
            func mayFail(_ worker: String, _ error: String) -> Bool {
                error == "EIO" && (Machine.losesRequestsOfTheDying || isOld && writes.contains(worker))
            }
            for worker in results + bystanders {
                let isOdd = worker.odd != 0 && !(Machine.losesErrorsOfReads && worker.oddError == "EIO")
                #expect(!isOdd || mayFail(worker.worker, worker.oddError), "\(worker.worker) had \(worker.oddError)")
            }
            for worker in bystanders where !mayFail(worker.worker, worker.failedWith) {
                #expect(worker.failed == 0, "\(worker.worker) of the other grant failed with \(worker.failedWith)")
            }
            #expect(deaths > 3)
            let all = results + bystanders
            print(
                "cache=\(cache), \(way): \(deaths) deaths, \(all.reduce(0) { $0 + $1.succeeded + $1.refused }) operations, "
                    + "\(all.reduce(0) { $0 + $1.interrupted }) EIO, the longest \(Int(bystanders.map(\.longestMilliseconds).max() ?? 0)) ms"
            )
        }

        /// Kills the daemon of a mount again and again, until `stop`.
        private final class Killer: @unchecked Sendable {
            // Safe to share: what changes is behind the lock.
            private let mount: ProbedMount
            private let lock = NSLock()
            private var (isStopped, hasEnded, deaths) = (false, false, 0)

            init(_ mount: ProbedMount) {
                self.mount = mount
                Thread.detachNewThread { [self] in
                    while !lock.withLock({ isStopped }) {
                        usleep(UInt32.random(in: 0..<120_000))
                        guard let daemon = try? self.mount.fixture.daemon(at: self.mount.mountpoint), kill(daemon, SIGKILL) == 0 else {
                            continue
                        }
                        lock.withLock { deaths += 1 }
                    }
                    lock.withLock { hasEnded = true }
                }
            }

            /// How many have died.
            func stop() -> Int {
                lock.withLock { isStopped = true }
                while !lock.withLock({ hasEnded }) { usleep(1_000) }
                return lock.withLock { deaths }
            }
        }

        /// Revokes and restores. Which threads have not worked both with the grant and without it.
        private func rounds(_ situation: Situation, _ patience: Int) throws -> [String] {
            let mount = try ProbedMount(situation)
            let load = try Load(below: mount.held)
            let other = try Load(below: mount.other)
            for _ in 0..<8 {
                pause(milliseconds: 30 * patience)
                let revoked = try mount.fixture.revoke("held")
                try load.revoked()
                #expect(revoked[0].isConfirmed)
                pause(milliseconds: 20 * patience)
                try load.granted()
                try mount.fixture.restore("held")
            }
            try mount.fixture.revoke("held")
            try load.revoked()
            pause(milliseconds: 100 * patience)

            var idle: [String] = []
            for worker in try load.stop() {
                #expect(worker.leaked == 0, "\(worker.worker) went on after a confirmed revocation")
                let isOdd = worker.odd != 0 && !(Machine.losesErrorsOfReads && worker.oddError == "EIO")
                #expect(!isOdd, "\(worker.worker) had \(worker.oddError)")
                if worker.refused == 0 || worker.succeeded == 0 { idle.append(worker.worker) }
                if worker.refused == 0 { continue }
                let expected = ["EACCES", "SIGBUS"] + (Machine.losesErrorsOfReads ? ["EIO"] : [])
                #expect(expected.contains(worker.lastError), "\(worker.worker) ended with \(worker.lastError)")
            }
            for worker in try other.stop() {
                #expect(worker.failed == 0, "\(worker.worker) of the other grant failed with \(worker.failedWith)")
                if worker.succeeded == 0 { idle.append("\(worker.worker) of the other grant") }
                // Less than a revocation waits for a hanging operation. More than a thread is
                // delayed.
                #expect(worker.longestMilliseconds < 9000, "\(worker.worker) of the other grant waited")
            }
            return idle
        }
    }
}
