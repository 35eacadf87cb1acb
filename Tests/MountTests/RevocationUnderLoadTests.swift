import TestSupport
import Testing

extension MountTests {
    /// Threads that open, read, write, map, list, rename and create while the grant goes and comes.
    @Suite struct UnderLoad {
        @Test("nothing succeeds after the confirmation, and the other grant never fails", arguments: ["shared", "exclusive"])
        func revokeAndRestore(cache: String) throws {
            var idle: [String] = []
            // On a busy machine a thread may not get its turn while the grant is there, or while it is not: then all of it again, with more time.
            for patience in [1, 10, 40] {
                idle = try rounds(cache, patience)
                if idle.isEmpty { break }
            }
            #expect(idle.isEmpty, "these never had a turn while the grant was there, or while it was not")
        }

        /// Revokes and restores. Which threads have not worked both with the grant and without it.
        private func rounds(_ cache: String, _ patience: Int) throws -> [String] {
            let mount = try ProbedMount(Situation(cache: cache))
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
                // Less than a revocation waits for what hangs; more than a thread stands.
                #expect(worker.longestMilliseconds < 9000, "\(worker.worker) of the other grant waited")
            }
            return idle
        }
    }
}
