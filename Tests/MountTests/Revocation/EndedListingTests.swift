import Foundation
import TestSupport
import Testing

/// `revoke --kill` and programs that copy a listing to memory that never comes.
extension MountTests.AHeldKernelLock {
    @Test(
        "`revoke --kill` ends a program that holds listings, and is confirmed",
        .enabled(if: isPossible, "needs root, /dev/fuse and a plain user"),
        arguments: [("shared", true), ("exclusive", true), ("none", true), ("none", false)])
    func ended(cache: String, areListed: Bool) throws {
        let mounted = try Mounted(cache: cache)
        let (fixture, probed) = (mounted.fixture, mounted.probed)
        let native = try probed.native()
        let probe = try probed.probe(probed.held)
        let other = try probed.probe(probed.other)
        let listed = (0..<Mounted.directories).map { "\(probed.held)/listed\($0)" }
        let script = "exec 3<\"$1\"; cd \"$1\"; echo ready; read -r line"
        let bystander = try Child(["sh", "-c", script, "sh", listed[0]], identity: probed.situation.caller)
        try bystander.expect("ready")
        let attack = try mounted.hold(listed, areListed: areListed)

        let ended = try fixture.grantfs("revoke", "held", "--kill", "--timeout", "8", "--json", within: 60)
        let revoked: [RevocationDocument] = try ended.decoded()
        #expect(ended.status == 0 && revoked[0].isConfirmed, "\(ended)")
        #expect(revoked[0].mounts[0].ended?.map(\.pid) == [attack.pid], "\(ended)")
        #expect(attack.wait() == -SIGKILL)
        ProbedMount.expectRefused(try probe.attempt(), native, "cache=\(cache)", cache: cache)
        ProbedMount.expectNative(try other.attempt(), native, "the other grant")
        #expect(Processes.isRunning(bystander.pid), "it has the directory open, and locks nothing")
        bystander.kill()
    }

    @Test(
        "A revocation names the process that holds a listing and advises `--kill`",
        .enabled(if: isPossible, "needs root, /dev/fuse and a plain user"), arguments: ["shared", "none"])
    func named(cache: String) throws {
        let mounted = try Mounted(cache: cache)
        let attack = try mounted.hold([mounted.probed.held + "/listed0", mounted.probed.held + "/listed1"])
        let output = try mounted.fixture.grantfs("revoke", "held", "--timeout", "2", "--json")
        let revoked: [RevocationDocument] = try output.decoded()
        let mount = try #require(revoked.first?.mounts.first)
        #expect(output.status == 3 && mount.processes == [attack.pid] && mount.ended == nil, "\(output)")
        #expect(mount.reason?.contains("process \(attack.pid) (") == true, "\(output)")
        #expect(output.errors.contains("--kill"), "\(output)")
        #expect(Processes.isRunning(attack.pid), "nothing is ended without --kill")
        attack.end()
        #expect(try mounted.fixture.revoke("held", "--timeout", "30")[0].isConfirmed)
    }

    @Test(
        "`revoke --kill` ends no program that waits for a listing of another",
        .enabled(if: isPossible, "needs root, /dev/fuse and a plain user"))
    func queued() throws {
        // Cached listings would be refused before they wait for the lock.
        let mounted = try Mounted(cache: "none")
        let (fixture, listed) = (mounted.fixture, mounted.probed.held + "/listed0")
        let script = """
            import ctypes, errno, os, sys
            library = ctypes.CDLL(None, use_errno=True)
            directory = os.open(sys.argv[1], os.O_RDONLY | os.O_DIRECTORY)
            print("ready", flush=True)
            sys.stdin.readline()
            # No other call comes before: it would be refused without the lock.
            if library.getdents64(directory, ctypes.create_string_buffer(32768), 32768) < 0:
                print(errno.errorcode[ctypes.get_errno()], flush=True)
            sys.stdin.readline()
            """
        let waiter = try Child(["python3", "-c", script, listed], identity: mounted.probed.situation.caller)
        try waiter.expect("ready")
        let attack = try mounted.hold([listed])
        #expect(try fixture.grantfs("revoke", "held", "--timeout", "2").status == 3)
        waiter.send("list")
        try fixture.wait(until: "it waits for the directory's lock") {
            Processes.kernelText("/proc/\(waiter.pid)/wchan").hasPrefix("iterate_dir")
        }
        let output = try fixture.grantfs("revoke", "held", "--kill", "--timeout", "8", "--json", within: 60)
        let revoked: [RevocationDocument] = try output.decoded()
        #expect(output.status == 0 && revoked[0].mounts[0].ended?.map(\.pid) == [attack.pid], "\(output)")
        try waiter.expect("EACCES")
        waiter.kill()
    }

    @Test(
        "`revoke --kill` ends no program that holds a listing of another grant",
        .enabled(if: isPossible, "needs root, /dev/fuse and a plain user"))
    func elsewhere() throws {
        let mounted = try Mounted(cache: "shared")
        let (fixture, probed) = (mounted.fixture, mounted.probed)
        let directory = fixture.base + "/source/other/elsewhere"
        try Command.shell("mkdir \"$1\"; cd \"$1\"; touch a b; chmod a+rwX .", directory).orThrow()
        try mounted.memory.file("more", size: 64 * 4096)
        chmod(mounted.memory.behind + "/more", 0o666)
        let attack = try mounted.hold([probed.held + "/listed0"])
        let words = [mounted.memory.directory + "/more", probed.other + "/elsewhere"]
        let stranger = try Attack("held-listing", words, as: probed.situation.caller)
        let output = try fixture.grantfs("revoke", "held", "--kill", "--timeout", "8", "--json", within: 60)
        let revoked: [RevocationDocument] = try output.decoded()
        #expect(output.status == 0 && revoked[0].mounts[0].ended?.map(\.pid) == [attack.pid], "\(output)")
        #expect(Processes.isRunning(stranger.pid))
        stranger.end()
    }

    @Test(
        "`revoke --kill` ends the listing for which a rename from another grant waits",
        .enabled(if: isPossible, "needs root, /dev/fuse and a plain user"))
    func renamed() throws {
        let mounted = try Mounted(cache: "shared")
        let (fixture, probed) = (mounted.fixture, mounted.probed)
        let directory = fixture.base + "/source/other/elsewhere"
        try Command.shell("mkdir \"$1\"; cd \"$1\"; touch a b; chmod a+rwX .", directory).orThrow()
        let target = probed.held + "/listed0"
        let open = try Child(["sh", "-c", "exec 3<\"$1\"; echo ready; read -r line", "sh", target], identity: probed.situation.caller)
        try open.expect("ready")
        let attack = try mounted.hold([probed.other + "/elsewhere"])
        // The kernel locks the new directory, and waits for the old one.
        let script = "import os, sys; os.rename(sys.argv[1], sys.argv[2])"
        let words = ["python3", "-c", script, probed.other + "/elsewhere/a", target + "/new"]
        let rename = try Child(words, identity: probed.situation.caller)
        try fixture.wait(until: "the rename waits") {
            let place = Processes.kernelText("/proc/\(rename.pid)/wchan")
            return place.hasPrefix("lock_two_directories") || place.hasPrefix("lock_rename")
        }
        let named = try fixture.grantfs("revoke", "held", "--timeout", "2", "--json")
        let first: [RevocationDocument] = try named.decoded()
        #expect(named.status == 3 && first[0].mounts[0].processes == [attack.pid], "\(named)")
        let output = try fixture.grantfs("revoke", "held", "--kill", "--timeout", "8", "--json", within: 60)
        let revoked: [RevocationDocument] = try output.decoded()
        #expect(output.status == 0 && revoked[0].mounts[0].ended?.map(\.pid) == [attack.pid], "\(output)")
        #expect(rename.wait() == 1, "it was refused, and not ended")
        open.kill()
    }

    @Test(
        "`revoke --kill` ends programs that hold more listings than an outcome names",
        .enabled(if: isPossible, "needs root, /dev/fuse and a plain user"), arguments: ["shared"])
    func manyEnded(cache: String) throws {
        let mounted = try Mounted(cache: cache)
        let (fixture, caller) = (mounted.fixture, mounted.probed.situation.caller)
        let parts = 6
        try Command.shell("cd \"$1\"; mkdir -p $(seq -f m%g \(parts * 60)) $(seq -f free%g 100); chmod -R a+rwX .", mounted.probed.source)
            .orThrow()
        // The kernel knows these first, so their invalidation comes before that of the others or waits behind it.
        try Command.shell("cd \"$1\"; stat free* >/dev/null", mounted.probed.held).orThrow()
        let attacks = try (0..<parts).map { part in
            try mounted.memory.file("part\(part)", size: 64 * 4096)
            chmod(mounted.memory.behind + "/part\(part)", 0o666)
            try mounted.memory.hang("read")
            let names = (1...60).map { "\(mounted.probed.held)/m\(part * 60 + $0)" }
            return try Attack("held-listing", ["\(mounted.memory.directory)/part\(part)"] + names, as: caller)
        }
        var names: [String] = []
        // A busy daemon may not answer in time, and then names nothing.
        try fixture.wait(until: "the daemon names what it waits for", within: 60) {
            let first: [RevocationDocument] = try fixture.grantfs("revoke", "held", "--timeout", "4", "--json", within: 60).decoded()
            names = first[0].mounts[0].unforgotten ?? []
            return !names.isEmpty
        }
        #expect(names.allSatisfy { $0.hasPrefix("m") }, "\(names): a directory that nothing holds is not named")
        let output = try fixture.grantfs("revoke", "held", "--kill", "--timeout", "40", "--json", within: 120)
        let revoked: [RevocationDocument] = try output.decoded()
        #expect(output.status == 0 && revoked[0].isConfirmed, "\(output)")
        #expect(Set(revoked[0].mounts[0].ended?.map(\.pid) ?? []) == Set(attacks.map(\.pid)), "\(output)")
    }

    @Test(
        "`revoke --kill` of a user's mount ends the user's program that holds a listing",
        .enabled(if: Machine.usersCanMount && Machine.loneUser != nil, "plain users cannot mount here, or none can be made"),
        arguments: ["shared", "exclusive"])
    func ofAUser(cache: String) throws {
        let owner = try #require(Machine.loneUser)
        let fixture = try MountFixture(owner: owner)
        let source = try fixture.source("a")
        try Command.shell("cd \"$1\"; mkdir l0 l1; touch l0/a l1/a", source, as: owner).orThrow()
        try fixture.grant(source)
        let mount = try fixture.mount(options: "cache=" + cache)
        let memory = try HangingSource("memory", in: fixture, squashes: true)
        defer { memory.end() }
        try memory.file("pages", size: 64 * 4096)
        chmod(memory.behind + "/pages", 0o666)
        try memory.hang("read")
        let attack = try Attack("held-listing", [memory.directory + "/pages", mount + "/a/l0", mount + "/a/l1"], as: owner)
        let output = try fixture.grantfs("revoke", "a", "--kill", "--timeout", "8", "--json", within: 60)
        let revoked: [RevocationDocument] = try output.decoded()
        #expect(output.status == 0 && revoked[0].mounts[0].ended?.map(\.pid) == [attack.pid], "\(output)")
    }

    @Test(
        "A revocation names no program that has begun to compute",
        .enabled(if: isPossible, "needs root, /dev/fuse and a plain user"))
    func computing() throws {
        let mounted = try Mounted(cache: "none", stops: true)
        let (fixture, probed) = (mounted.fixture, mounted.probed)
        let stops = try StopPoints(fixture)
        let script = """
            import os, sys
            os.stat(sys.argv[1])
            print("ready", flush=True)
            sys.stdin.readline()
            print("computing", flush=True)
            while True: pass
            """
        // The last call of its thread was in the grant.
        let program = try Child(["python3", "-c", script, probed.held + "/listed1"], identity: probed.situation.caller)
        try program.expect("ready")
        let attack = try mounted.hold([probed.held + "/listed0"])
        stops.arm("naming")
        let words = [Programs.grantfsWithFaults, "revoke", "held", "--timeout", "60"]
        let revocation = try Child(words, environment: fixture.environment)
        try stops.awaitStop("naming")
        program.send("go")
        try program.expect("computing")
        stops.goOn("naming")
        var mount: ConfirmationDocument?
        try fixture.wait(until: "a partial outcome") {
            let output = try fixture.grantfs("revoke", "held", "--timeout", "0.3", "--json")
            mount = try output.decoded(as: [RevocationDocument].self).first?.mounts.first
            return mount?.unforgotten?.isEmpty == false
        }
        #expect(mount?.processes == [attack.pid], "\(String(describing: mount))")
        program.kill()
        attack.end()
        #expect(revocation.wait() == 0)
    }
}
