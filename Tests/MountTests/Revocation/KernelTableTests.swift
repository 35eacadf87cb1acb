import TestSupport
import Testing

extension MountTests {
    /// Row by row what still answers from the kernel when only the daemon refuses: files, maps, directories, names, locks.
    @Suite struct KernelTableTests {
        @Test("Before a revocation every kind of access gives the native result", arguments: Situation.all)
        func everythingWorks(_ situation: Situation) throws {
            let mount = try ProbedMount(situation)
            let native = try mount.native()
            let probe = try mount.probe(mount.held)
            ProbedMount.expectNative(try probe.attempt(), native, "first round")
            ProbedMount.expectNative(try probe.attempt(), native, "second round")
        }

        @Test("Every kind of access is refused after a revocation", arguments: Situation.all)
        func everythingIsRefused(_ situation: Situation) throws {
            let mount = try ProbedMount(situation)
            let native = try mount.native()
            // Whether everything can be mapped without a cache is the other test's question.
            let without: Set<String> = situation.cache == "none" ? ["SKIP", "ENODEV"] : []
            let held = try mount.probe(mount.held)
            let other = try mount.probe(mount.other)
            if !situation.cold { ProbedMount.expectNative(try held.attempt(), native, "before", without: without) }

            let revoked = try mount.fixture.revoke("held")
            #expect(revoked.count == 1 && revoked[0].mounts.count == 1 && revoked[0].isConfirmed)
            ProbedMount.expectRefused(try held.attempt(), native, "revoked", cache: situation.cache)
            ProbedMount.expectRefused(try held.attempt(), native, "revoked, again", cache: situation.cache)
            ProbedMount.expectNative(try other.attempt(), native, "the other grant", without: without)

            try mount.fixture.restore("held")
            ProbedMount.expectNative(try mount.probe(mount.held).attempt(), native, "restored, fresh handles", without: without)
            let old = try held.attempt().filter { !["path", "inotify"].contains($0.held) && $0.after != "FAIL" }
            ProbedMount.expectRefused(old, native, "restored, old handles", cache: situation.cache)
            for result in try held.letGo() + other.letGo() {
                #expect(result.errno == "OK", "close never fails: \(result.held) gives \(result.errno)")
            }
        }
    }
}
