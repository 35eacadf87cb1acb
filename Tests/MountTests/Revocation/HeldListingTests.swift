import Foundation
import TestSupport
import Testing

/// Many held listings, repeated withdrawals and want of threads.
extension MountTests.AHeldKernelLock {
    @Test(
        "A listing that stays held keeps every later revocation unconfirmed",
        .enabled(if: isPossible, "needs root, /dev/fuse and a plain user"), arguments: ["shared", "exclusive"])
    func again(cache: String) throws {
        let mounted = try Mounted(cache: cache)
        let fixture = mounted.fixture
        let attack = try mounted.hold([mounted.probed.held + "/listed0"])
        for turn in 0..<3 {
            let output = try fixture.grantfs("revoke", "held", "--timeout", "2", "--json")
            let revoked: [RevocationDocument] = try output.decoded()
            #expect(output.status == 3 && revoked.first?.mounts.first?.unforgotten == ["listed0"], "turn \(turn): \(output)")
            // A restoration does not wait for earlier listings.
            #expect(try fixture.grantfs("restore", "held", "--timeout", "2").status == 0)
        }
        #expect(try fixture.grantfs("remove", "held", "--timeout", "2").status == 3)
        attack.end()
        #expect(try fixture.revoke("other")[0].isConfirmed)
    }

    @Test(
        "A revocation past many held listings still frees file locks of the grant",
        .enabled(if: isPossible, "needs root, /dev/fuse and a plain user"), arguments: ["shared", "exclusive"])
    func many(cache: String) throws {
        let mounted = try Mounted(cache: cache)
        let (fixture, caller) = (mounted.fixture, mounted.probed.situation.caller)
        try Command.shell("cd \"$1\"; mkdir -p $(seq -f m%g 300); touch locked; chmod -R a+rwX .", mounted.probed.source).orThrow()
        let locked = try Child(["flock", mounted.probed.held + "/locked", "sh", "-c", "echo ready; exec sleep 1000"], identity: caller)
        try locked.expect("ready")
        // One file has 64 pages.
        let attacks = try (0..<5).map { part in
            try mounted.memory.file("part\(part)", size: 64 * 4096)
            chmod(mounted.memory.behind + "/part\(part)", 0o666)
            try mounted.memory.hang("read")
            let names = (1...60).map { "\(mounted.probed.held)/m\(part * 60 + $0)" }
            return try Attack("held-listing", ["\(mounted.memory.directory)/part\(part)"] + names, as: caller)
        }
        let output = try fixture.grantfs("revoke", "held", "--timeout", "20", "--json")
        let revoked: [RevocationDocument] = try output.decoded()
        #expect(output.status == 3 && revoked.first?.mounts.first?.unforgotten?.isEmpty == false, "\(output)")
        try fixture.wait(until: "others can lock the file") {
            try Command.run(["flock", "-n", mounted.probed.source + "/locked", "true"]).status == 0
        }
        for attack in attacks { attack.end() }
        #expect(try fixture.revoke("held", "--timeout", "60")[0].isConfirmed)
    }

    @Test(
        "A held listing keeps no file readable that the host moved out of the grant",
        .enabled(if: isPossible, "needs root, /dev/fuse and a plain user"), arguments: ["shared", "exclusive"])
    func movedOut(cache: String) throws {
        let mounted = try Mounted(cache: cache)
        let (fixture, caller) = (mounted.fixture, mounted.probed.situation.caller)
        let files = "for i in $(seq 12); do truncate -s 8192 away/f$i; done"
        try Command.shell("cd \"$1\"; mkdir -p $(seq -f away/l%g 40); \(files); chmod -R a+rwX away", mounted.probed.source).orThrow()
        let holders = try (1...12).map { number in
            try Child([Programs.attacker(for: caller), "outlive", "\(mounted.probed.held)/away/f\(number)", "map"], identity: caller)
        }
        for holder in holders { try holder.expect("ready") }
        let attack = try mounted.hold((1...40).map { "\(mounted.probed.held)/away/l\($0)" })
        guard rename(mounted.probed.source + "/away", fixture.base + "/outside/moved") == 0 else { throw TestFailure("cannot move it") }
        for (number, holder) in holders.enumerated() {
            try fixture.wait(until: "file \(number) is not readable any more") {
                holder.send("?")
                return holder.line()?.hasPrefix("map SIGBUS") == true
            }
        }
        attack.end()
    }

    @Test(
        "Held listings delay no withdrawal of another grant at the thread limit",
        .enabled(if: Machine.usersCanMount && Machine.secondLoneUser != nil, "plain users cannot mount here, or none can be made"),
        arguments: ["shared", "exclusive"])
    func withoutThreads(cache: String) throws {
        // The limit counts every process and thread of the user.
        let owner = try #require(Machine.secondLoneUser)
        let fixture = try MountFixture(owner: owner)
        try fixture.wait(until: "who was here before is gone") {
            Int(try Command.shell("ps -L -u $1 | wc -l", "\(owner.uid)").trimmed) ?? 0 < 20
        }
        for name in ["a", "b"] {
            let source = try fixture.source(name)
            try Command.shell("cd \"$1\"; mkdir l0 l1 l2 l3; touch l0/a l1/a l2/a l3/a; truncate -s 8192 file", source, as: owner).orThrow()
            try fixture.grant(source)
        }
        let mount = try fixture.directory("mount")
        try Command.run(
            ["prlimit", "--nproc=200", Programs.grantfs(for: owner), "mount", "default", mount, "-o", "cache=" + cache], as: owner,
            environment: fixture.environment
        ).orThrow()
        let memory = try HangingSource("memory", in: fixture, squashes: true)
        defer { memory.end() }
        try memory.file("pages", size: 64 * 4096)
        chmod(memory.behind + "/pages", 0o666)
        let holder = try Child([Programs.attacker(for: owner), "outlive", mount + "/b/file", "map"], identity: owner)
        try holder.expect("ready")
        try memory.hang("read")
        let attack = try Attack("held-listing", [memory.directory + "/pages"] + (0..<4).map { "\(mount)/a/l\($0)" }, as: owner)
        let crowd = try Child(["sh", "-c", "for i in $(seq 250); do sleep 1000 & done; echo ready; wait"], identity: owner)
        try crowd.expect("ready")

        #expect(try fixture.grantfs("revoke", "a", "--timeout", "3").status == 3)
        let revoked = try fixture.grantfs("revoke", "b", "--timeout", "10", "--json")
        #expect(revoked.status == 0, "\(revoked)")
        holder.send("?")
        #expect(holder.line()?.hasPrefix("map SIGBUS") == true)
        // Threads can be made again: nothing of the second withdrawal is left.
        crowd.kill()
        try fixture.restore("b")
        #expect(try fixture.revoke("b")[0].isConfirmed)
        attack.end()
        #expect(try fixture.revoke("a", "--timeout", "30")[0].isConfirmed)
    }
}
