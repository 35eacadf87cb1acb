import TestSupport
import Testing

extension MountTests {
    /// Threads that open, read, write, map, list, rename and create while the grant goes and comes.
    @Suite struct UnderLoad {
        @Test("nothing succeeds after the confirmation, and the other grant never fails", arguments: ["shared", "exclusive"])
        func revokeAndRestore(cache: String) throws {
            let mount = try ProbedMount(Situation(cache: cache))
            let load = try Load(below: mount.held)
            let other = try Load(below: mount.other)
            let rounds = 8
            for _ in 0..<rounds {
                pause(milliseconds: 30)
                let revoked = try mount.fixture.revoke("held")
                try load.revoked()
                #expect(revoked[0].isConfirmed)
                pause(milliseconds: 20)
                try load.granted()
                try mount.fixture.restore("held")
            }
            try mount.fixture.revoke("held")
            try load.revoked()
            pause(milliseconds: 100)

            for worker in try load.stop() {
                #expect(worker.leaked == 0, "\(worker.worker) went on after a confirmed revocation")
                #expect(worker.refused > 0, "\(worker.worker)")
                #expect(worker.odd == 0, "\(worker.worker) had \(worker.oddError)")
                #expect(["EACCES", "SIGBUS"].contains(worker.lastError), "\(worker.worker) ended with \(worker.lastError)")
                #expect(worker.succeeded > 0, "\(worker.worker)")
            }
            for worker in try other.stop() {
                #expect(worker.failed == 0, "\(worker.worker) of the other grant failed with \(worker.failedWith)")
                #expect(worker.succeeded > 0, "\(worker.worker) of the other grant")
                #expect(worker.longestMilliseconds < 3000, "\(worker.worker) of the other grant waited")
            }
        }
    }
}
