import Foundation
import TestSupport
import Testing

/// Holders of a mount whose daemon has ended, and the reports about them.
extension MountTests.AfterTheDaemon {
    @Test(
        "`revoke --kill` ends the holders of a killed daemon's mount and no others",
        arguments: [["map"], ["fd"], ["cwd"], ["thread"]])
    func killed(kinds: [String]) throws {
        let scene = try Scene()
        let holder = try scene.holder(kinds)
        // In the root of the mount, which is of no grant.
        let idler = try Child(["sh", "-c", "cd \"$1\" && echo ready && read -r line", "sh", scene.mount])
        try idler.expect("ready")
        try scene.fixture.killDaemon(at: scene.mount)
        try scene.mountAgain()
        let bystander = try scene.holder(["map", "fd"], of: scene.mount + "/a/other")
        try expectHeld(scene, by: holder)
        #expect(try Self.said(bystander).hasPrefix("map SIGBUS"), "the mount that lives has confirmed")
        let ended = try scene.revoke("--kill")
        #expect(ended.status == 0, "\(ended)")
        #expect(ended.mounts.flatMap { $0.ended ?? [] }.map(\.pid) == [holder.pid])
        #expect(holder.wait() == -SIGKILL)
        #expect(bystander.wait(within: 0) == nil, "who holds something of the mount that lives goes on")
        #expect(idler.wait(within: 0) == nil, "who holds nothing of a grant goes on")
        #expect(try scene.revoke().status == 0)
    }

    @Test("A holder of a killed daemon's mount in another namespace is found", .enabled(if: Identity.isRoot))
    func killedWithANamespace() throws {
        let scene = try Scene()
        let holder = try scene.holder(["map"], before: ["unshare", "-m", "--propagation", "private"])
        try scene.fixture.killDaemon(at: scene.mount)
        try scene.mountAgain()
        try expectHeld(scene, by: holder)
        #expect(try scene.revoke("--kill").status == 0)
        #expect(holder.wait() == -SIGKILL)
    }

    @Test("A process that has read the id of the boot knows it without free descriptors")
    func knownBoot() throws {
        #expect(try Command.run([Programs.claimProbe, "-", "boot"]).trimmed == "unknown known known")
    }

    @Test("A mount is neither dead nor gone while the id of the boot cannot be read", .enabled(if: Identity.isRoot))
    func unknownBoot() throws {
        let scene = try Scene()
        let grantfs = { (arguments: String...) in
            try Command.run(
                ["unshare", "-m", "sh", "-c", "mount -t tmpfs none /proc/sys/kernel/random && exec \"$@\"", "sh", Programs.grantfs]
                    + arguments,
                environment: scene.fixture.environment)
        }
        let live = try grantfs("status", "--json")
        #expect(live.status == 0 && live.text.contains("\"state\":\"live\""), "\(live)")
        let holder = try scene.holder(["map"])
        try scene.fixture.killDaemon(at: scene.mount)
        let refused = try grantfs("revoke", "a", "--json", "--timeout", "1")
        #expect(refused.status == 3, "\(refused)")
        #expect(holder.wait(within: 0) == nil)
        holder.kill()
        #expect(try scene.revoke().status == 0)
    }

    /// In a mount namespace of its own, where fusectl is mounted as it is on machines with systemd.
    @Test("A descriptor in flight keeps a revocation of a dead mount unconfirmed", .enabled(if: Identity.isRoot))
    func unseen() throws {
        let fixture = try MountFixture()
        let source = try fixture.source("a")
        try Data(repeating: 0, count: 8192).write(to: URL(fileURLWithPath: source + "/file"))
        try fixture.grant(source)
        let script = """
            \(Self.withFusectl)
            "$1" mount default "$2" -o cache=exclusive
            coproc held { "$3" flight "$2/a/file"; }; read -r ready <&"${held[0]}"
            pid=$("$1" status --json | grep -o '"pid":[0-9]*' | head -n 1 | cut -d : -f 2); kill -9 "$pid"
            while kill -0 "$pid" 2>/dev/null; do sleep 0.01; done
            "$1" mount default "$2"
            "$1" revoke a >&2 && echo confirmed || echo "status $?"
            echo >&"${held[1]}"; read -r said <&"${held[0]}"; echo "$said"
            kill "$held_PID"; wait || true
            "$1" revoke a >&2 && echo confirmed || echo "status $?"
            "$1" unmount "$2"
            """
        let output = try Command.run(
            [
                "unshare", "-m", "--propagation", "private", "bash", "-euc", script, "bash", Programs.grantfs, fixture.base + "/mount",
                Programs.attacker,
            ],
            environment: fixture.environment, within: 60)
        let said = output.lines.map { Machine.losesErrorsOfReads && $0 == "EIO" ? "ENOTCONN" : $0 }
        #expect(said == ["status 3", "ENOTCONN", "confirmed"], "\(output)")
    }

    @Test(
        "A process in the root of a dead mount keeps no revocation unconfirmed",
        .enabled(if: Identity.isRoot))
    func idle() throws {
        let fixture = try MountFixture()
        let source = try fixture.source("a")
        try fixture.grant(source)
        let script = """
            \(Self.withFusectl)
            "$1" mount default "$2"
            coproc idler { cd "$2" && echo ready && read -r line; }; read -r ready <&"${idler[0]}"
            pid=$("$1" status --json | grep -o '"pid":[0-9]*' | head -n 1 | cut -d : -f 2); kill -9 "$pid"
            while kill -0 "$pid" 2>/dev/null; do sleep 0.01; done
            "$1" mount default "$2"
            "$1" revoke a >&2 && echo confirmed || echo "status $?"
            "$1" status --json | grep -o '"state":"dead"'
            kill "$idler_PID"; wait || true
            "$1" unmount "$2"
            """
        let output = try Command.run(
            ["unshare", "-m", "--propagation", "private", "bash", "-uc", script, "bash", Programs.grantfs, fixture.base + "/mount"],
            environment: fixture.environment, within: 60)
        #expect(output.lines == ["confirmed", "\"state\":\"dead\""], "\(output)")
    }

    private static let withFusectl =
        "grep -q ' /sys/fs/fuse/connections fusectl ' /proc/self/mounts || mount -t fusectl fusectl /sys/fs/fuse/connections"

    func expectHeld(_ scene: Scene, by holder: Child) throws {
        let refused = try scene.revoke()
        #expect(refused.status == 3, "\(refused)")
        let dead = try #require(refused.mounts.first { $0.pid == scene.daemon }, "\(refused)")
        #expect(!dead.confirmed && dead.state == "dead" && dead.holders?.map(\.pid) == [holder.pid], "\(dead)")
        #expect(holder.wait(within: 0) == nil, "nobody is ended without being told to")
    }

    @Test(
        "A process with thousands of threads delays no revocation of a dead mount"
    )
    func manyThreads() throws {
        let scene = try Scene()
        let threads = try Child([Programs.attacker, "threads", "2500"])
        try threads.expect("ready")
        let holder = try scene.holder(["map"])
        try scene.fixture.killDaemon(at: scene.mount)
        try expectHeld(scene, by: holder)
        holder.kill()
        let rest = try scene.revoke()
        #expect(rest.status == 0, "\(rest)")
    }

    @Test("A revocation reaches a live daemon whose mount was detached", .enabled(if: Identity.isRoot))
    func detached() throws {
        let scene = try Scene()
        let holder = try scene.holder(["map", "fd"])
        try Command.run(["umount", "-l", scene.mount]).orThrow()
        // A mount at the same place that dies and is cleaned away takes no other's record along.
        try scene.mountAgain()
        let second = try #require(try scene.fixture.status().mounts.first { $0.pid != scene.daemon }).pid
        kill(second, SIGKILL)
        try scene.fixture.wait(until: "the second daemon is gone") { !Processes.isRunning(second) }
        try scene.mountAgain()
        let (status, mounts) = try scene.revoke()
        #expect(status == 0)
        #expect(mounts.contains { $0.pid == scene.daemon && $0.confirmed }, "\(mounts)")
        let left = try Self.said(holder)
        #expect(left.hasPrefix("map SIGBUS fd EACCES"), "\(left)")
    }

    @Test("Users of a filesystem that reuses a dead mount's number are not holders")
    func numberUsedAgain() throws {
        let scene = try Scene()
        try scene.fixture.killDaemon(at: scene.mount)
        let detach = Identity.isRoot ? ["umount", "-l", scene.mount] : ["fusermount3", "-uz", scene.mount]
        try Command.run(detach).orThrow()
        // The lowest free number is given: mostly this one. Its store is another, without a record
        // of the first.
        let later = try Scene()
        let bystander = try later.holder(["map", "fd", "cwd"])
        if Machine.tellsFilesystemsApart { #expect(try scene.fixture.status().mounts.isEmpty) }
        #expect(try scene.revoke("--kill", "--timeout", "1").status == 0)
        #expect(bystander.wait(within: 0) == nil)
        #expect(try Self.said(bystander).hasPrefix("map read"))
    }

    @Test("A dead mount is shown with its holders while it is held")
    func shown() throws {
        let scene = try Scene()
        let live = try scene.fixture.grantfs("status", "--json").orThrow()
        #expect(live.text.contains("\"state\":\"live\""))
        let holder = try scene.holder(["map"])
        try scene.fixture.killDaemon(at: scene.mount)
        for _ in 0..<2 {
            let output = try scene.fixture.grantfs("status", "--json")
            #expect(output.status == 1 && output.errors.contains("dead"), "\(output)")
            let document: DeadStatus = try output.decoded()
            #expect(document.mounts.map(\.state) == ["dead"] && document.mounts[0].holders.map(\.pid) == [holder.pid], "\(output)")
            #expect(try scene.fixture.grantfs("status").text.contains(", dead"))
            let metrics = try scene.fixture.grantfs("metrics").orThrow().text
            #expect(
                metrics.contains("grantfs_up{")
                    && metrics.split(separator: "\n").contains { $0.hasPrefix("grantfs_up{") && $0.hasSuffix(" 0") })
            #expect(try scene.fixture.grantfs("top", "--delay", "0.1").orThrow().text.contains("dead: its daemon has ended"))
            // The second time it is mounted nowhere, and still held.
            let detach = Identity.isRoot ? ["umount", "-l", scene.mount] : ["fusermount3", "-uz", scene.mount]
            _ = try Command.run(detach)
        }
        holder.kill()
        let gone = try scene.fixture.grantfs("status", "--json")
        #expect(gone.status == 0 && gone.trimmed == "{\"mounts\":[]}", "\(gone)")
    }

    @Test("`status` finds the holders of a stopped daemon's mount")
    func stopped() throws {
        let scene = try Scene()
        let holder = try scene.holder(["map", "fd", "cwd"])
        kill(scene.daemon, SIGSTOP)
        defer { kill(scene.daemon, SIGCONT) }
        let output = try scene.fixture.grantfs("status", "--json", "--timeout", "0.3", within: 30)
        let document: DeadStatus = try output.decoded()
        #expect(output.status == 0 && document.mounts[0].holders.map(\.pid) == [holder.pid], "\(output)")
    }
}
