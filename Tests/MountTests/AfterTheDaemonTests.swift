import Foundation
import TestSupport
import Testing

extension MountTests {
    /// What a holder has of a mount when its daemon has ended, in order or not.
    @Suite struct AfterTheDaemon {
        /// A grant `a` with a file of two pages, mounted.
        private struct Scene {
            let fixture: MountFixture
            let mount: String
            let daemon: pid_t
            let source: String
            var file: String { mount + "/a/file" }
            var native: String { source + "/file" }

            init(cache: String = "shared", owner: Identity = .current) throws {
                fixture = try MountFixture(owner: owner)
                source = try fixture.source("a")
                for name in ["file", "other"] {
                    try Data(repeating: 0, count: 8192).write(to: URL(fileURLWithPath: source + "/" + name))
                    chown(source + "/" + name, owner.uid, owner.gid)
                }
                try fixture.grant(source)
                mount = try fixture.mount(options: "cache=" + cache)
                daemon = try fixture.daemon(at: mount)
            }

            func holder(_ kinds: [String], of file: String? = nil, before: [String] = []) throws -> Child {
                let child = try Child(before + [Programs.attacker, "outlive", file ?? self.file] + kinds, identity: fixture.owner)
                try child.expect("ready")
                return child
            }

            func awaitEnd() throws { try fixture.wait(until: "the daemon has ended") { !Processes.isRunning(daemon) } }

            func revoke(_ more: String...) throws -> (status: Int32, mounts: [DeadConfirmation]) {
                let output = try fixture.grantfs(["revoke", "a", "--json"] + more)
                let changes: [DeadRevocation] = try output.decoded()
                return (output.status, changes.flatMap(\.mounts))
            }

            func mountAgain() throws { try fixture.mount() }
        }

        private static func said(_ holder: Child) throws -> String {
            holder.send("?")
            return try #require(holder.line(), "the holder says nothing")
        }

        /// The same, where a read of a descriptor may fail with any error: see `Machine.losesErrorsOfReads`.
        private static func saidOfReads(_ holder: Child) throws -> String {
            let said = try said(holder)
            return Machine.losesErrorsOfReads ? said.replacingOccurrences(of: "fd EIO", with: "fd ENOTCONN") : said
        }

        // MARK: an end in order

        @Test(
            "that ends in order nothing is held any more, and what was acknowledged is in the file",
            arguments: ["shared", "exclusive", "none"], [SIGTERM, SIGINT, SIGHUP])
        func endInOrder(cache: String, signal: Int32) throws {
            let scene = try Scene(cache: cache)
            let holder = try scene.holder(["map", "fd", "cwd"])
            #expect(try Self.said(holder).hasPrefix("map read fd read cwd seen"))
            kill(scene.daemon, signal)
            try scene.awaitEnd()
            let left = try Self.said(holder).split(separator: " ").map(String.init)
            #expect(left[1] == "SIGBUS", "\(left)")
            let refusals = ["EACCES", "ENOTCONN"]
            #expect(refusals.contains(left[3]) || (Machine.losesErrorsOfReads && left[3] == "EIO"), "\(left)")
            #expect(refusals.contains(left[5]), "\(left)")
            let data = try Data(contentsOf: URL(fileURLWithPath: scene.native))
            #expect(data.prefix(6) == Data("stored".utf8) && data.dropFirst(4096).prefix(7) == Data("written".utf8))
            #expect(scene.fixture.mountpoints.isEmpty)
            // Nothing is left, so nothing keeps a revocation from being confirmed.
            try scene.mountAgain()
            #expect(try scene.revoke().status == 0)
        }

        @Test(
            "that ends in order while one grant's filesystem hangs: it ends in time, and nothing is held of the others",
            .enabled(if: Identity.isRoot))
        func endWhileOneHangs() throws {
            let scene = try Scene(cache: "exclusive")
            let hanging = try HangingSource("hanging", in: scene.fixture)
            defer { hanging.end() }
            try hanging.file("file", size: 8192)
            try scene.fixture.grant(hanging.directory, name: "h")
            let stuck = try scene.holder(["map", "fd"], of: scene.mount + "/h/file")
            let holder = try scene.holder(["map", "fd"])
            try hanging.hang()
            kill(scene.daemon, SIGTERM)
            try scene.fixture.wait(until: "the mount is gone", within: 25) { !scene.fixture.mountpoints.contains(scene.mount) }
            #expect(try Self.said(holder).hasPrefix("map SIGBUS"))
            #expect(try Self.said(stuck).hasPrefix("map SIGBUS"))
            hanging.end()
            try scene.awaitEnd()
        }

        @Test("that ends in order after it was detached: the mount that came in its place stays", .enabled(if: Identity.isRoot))
        func endAfterDetaching() throws {
            let scene = try Scene()
            let holder = try scene.holder(["map", "fd"])
            try Command.run(["umount", "-l", scene.mount]).orThrow()
            try scene.mountAgain()
            kill(scene.daemon, SIGTERM)
            try scene.awaitEnd()
            #expect(try Self.said(holder).hasPrefix("map SIGBUS"))
            #expect(try Command.run(["ls", scene.mount]).lines == ["a"], "the other daemon's mount is there")
        }

        // MARK: an end without order

        @Test(
            "that was killed: revoke names who holds something of it, and --kill ends those and nobody else",
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

        @Test(
            "that was killed: what the kernel had cached for those who hold it is forgotten at once, dirty or not, in one namespace or another",
            arguments: ["shared", "exclusive"])
        func forgotten(cache: String) throws {
            let scene = try Scene(cache: cache)
            let holder = try scene.holder(["map", "fd", "cwd"])
            let elsewhere =
                Identity.isRoot ? try scene.holder(["map", "fd"], before: ["unshare", "-m", "--propagation", "private"]) : nil
            #expect(try Self.said(holder).hasPrefix("map read fd read cwd seen"))
            kill(scene.daemon, SIGKILL)
            for one in [holder, elsewhere].compactMap({ $0 }) {
                try scene.fixture.wait(until: "the mapping is gone") { try Self.saidOfReads(one).hasPrefix("map SIGBUS fd ENOTCONN") }
            }
            // Directories last, one after the other.
            try scene.fixture.wait(until: "nothing is left of it") {
                try Self.saidOfReads(holder) == "map SIGBUS fd ENOTCONN cwd ENOTCONN"
            }
            // Nobody is left who would keep the connection, or the processes beside it.
            try scene.fixture.wait(until: "the keeper has ended") { Processes.keepers(of: scene.mount).isEmpty }
            #expect(holder.wait(within: 0) == nil, "nobody is ended")
        }

        @Test(
            "that was killed, of a user who cannot cut its connection: what he stored is not waited for, and all of it is forgotten",
            .enabled(if: Machine.usersCanMount, "\(Machine.usersCannotMount)"), arguments: ["shared", "exclusive"])
        func forgottenForAUser(cache: String) throws {
            let scene = try Scene(cache: cache, owner: try #require(Machine.plainUser))
            let holder = try scene.holder(["map", "fd", "cwd"])
            #expect(try Self.said(holder).hasPrefix("map read fd read cwd seen"))
            kill(scene.daemon, SIGKILL)
            // Directories last, one after the other.
            try scene.fixture.wait(until: "nothing is left of it") {
                try Self.saidOfReads(holder) == "map SIGBUS fd ENOTCONN cwd ENOTCONN"
            }
            try scene.fixture.wait(until: "the keeper has ended") { Processes.keepers(of: scene.mount).isEmpty }
        }

        @Test(
            "that was killed a moment ago: a revocation is not confirmed before the process beside it has had the kernel forget",
            .enabled(if: Machine.usersCanMount, "\(Machine.usersCannotMount)"), arguments: [false, true])
        func keeperAtWork(isUsers: Bool) throws {
            let scene = try Scene(owner: isUsers ? try #require(Machine.plainUser) : .current)
            let keeper = try #require(Processes.keepers(of: scene.mount).first)
            kill(keeper, SIGSTOP)
            defer { kill(keeper, SIGCONT) }
            kill(scene.daemon, SIGKILL)
            try scene.awaitEnd()
            let early = try scene.revoke("--timeout", "0.5")
            #expect(
                early.status == 3 && early.mounts.allSatisfy { !$0.confirmed && $0.reason?.contains("has not finished") == true },
                "\(early)")
            kill(keeper, SIGCONT)
            let late = try scene.revoke("--timeout", "30")
            #expect(late.status == 0, "\(late)")
            #expect(Processes.keepers(of: scene.mount).allSatisfy { !Processes.isRunning($0) })
        }

        @Test(
            "that was killed while a thread of it stands in a granted filesystem that hangs: all else is forgotten, and nobody waits",
            .enabled(if: Identity.isRoot))
        func forgottenWhileOneHangs() throws {
            let scene = try Scene(cache: "exclusive")
            let hanging = try HangingSource("hanging", in: scene.fixture)
            defer { hanging.end() }
            try hanging.file("file", size: 8192)
            try scene.fixture.grant(hanging.directory, name: "h")
            let holder = try scene.holder(["map"])
            try hanging.hang("read")
            let reader = try Child(["cat", scene.mount + "/h/file"])
            try scene.fixture.wait(until: "it waits for the filesystem") {
                try scene.fixture.status().mounts.first?.grants.first { $0.name == "h" }?.inFlight ?? 0 > 0
            }
            #expect(try Self.said(holder).hasPrefix("map read"))
            kill(scene.daemon, SIGKILL)
            try scene.fixture.wait(until: "the mapping is gone") { try Self.said(holder).hasPrefix("map SIGBUS") }
            #expect(try Command.run(["stat", scene.mount + "/a/nothing"], within: 10).errors.contains("not connected"))
            #expect(reader.wait() == 1)
        }

        @Test("that was killed, held in another mount namespace where it is mounted still", .enabled(if: Identity.isRoot))
        func killedWithANamespace() throws {
            let scene = try Scene()
            let holder = try scene.holder(["map"], before: ["unshare", "-m", "--propagation", "private"])
            try scene.fixture.killDaemon(at: scene.mount)
            try scene.mountAgain()
            try expectHeld(scene, by: holder)
            #expect(try scene.revoke("--kill").status == 0)
            #expect(holder.wait() == -SIGKILL)
        }

        @Test(
            "whose connection was cut (umount -f): as one that was killed, but that it forgets by itself, without its keeper",
            .enabled(if: Identity.isRoot), arguments: ["shared", "exclusive"])
        func cut(cache: String) throws {
            let scene = try Scene(cache: cache)
            let holder = try scene.holder(["map"])
            let keepers = Processes.keepers(of: scene.mount)
            #expect(keepers.count == 1)
            for keeper in keepers { kill(keeper, SIGKILL) }
            // It is busy, and stays; the connection is cut all the same.
            _ = try Command.run(["umount", "-f", scene.mount])
            try scene.awaitEnd()
            // After 6.18 the kernel keeps what is cached under write-back, and then nobody can tell it anything: docs/conformance.md, “What differs”.
            let keeps = cache == "exclusive" && Machine.kernel > (6, 18)
            let said = try Self.said(holder)
            #expect(said.hasPrefix("map SIGBUS") || (keeps && said.hasPrefix("map read")), "\(said)")
            try scene.mountAgain()
            try expectHeld(scene, by: holder)
            #expect(try scene.revoke("--kill").status == 0)
            #expect(holder.wait() == -SIGKILL)
        }

        /// In a mount namespace of its own, where fusectl is mounted as it is on machines with systemd.
        @Test("that was killed, held by a descriptor on its way, which no table shows: it is not confirmed", .enabled(if: Identity.isRoot))
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
            "that was killed, with nobody but a process in the root of its mount, which fusectl shows as well: that keeps no revocation unconfirmed",
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

        private func expectHeld(_ scene: Scene, by holder: Child) throws {
            let refused = try scene.revoke()
            #expect(refused.status == 3, "\(refused)")
            let dead = try #require(refused.mounts.first { $0.pid == scene.daemon }, "\(refused)")
            #expect(!dead.confirmed && dead.state == "dead" && dead.holders?.map(\.pid) == [holder.pid], "\(dead)")
            #expect(holder.wait(within: 0) == nil, "nobody is ended without being told to")
        }

        @Test("that lives while its mount was detached is asked, whatever is mounted in its place since", .enabled(if: Identity.isRoot))
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

        @Test("whose filesystem's number another one has by now: its users are not taken for holders")
        func numberUsedAgain() throws {
            let scene = try Scene()
            try scene.fixture.killDaemon(at: scene.mount)
            let detach = Identity.isRoot ? ["umount", "-l", scene.mount] : ["fusermount3", "-uz", scene.mount]
            try Command.run(detach).orThrow()
            // The lowest free number is given: mostly this one. Its store is another, of which the first knows nothing.
            let later = try Scene()
            let bystander = try later.holder(["map", "fd", "cwd"])
            if Machine.tellsFilesystemsApart { #expect(try scene.fixture.status().mounts.isEmpty) }
            #expect(try scene.revoke("--kill", "--timeout", "1").status == 0)
            #expect(bystander.wait(within: 0) == nil)
            #expect(try Self.said(bystander).hasPrefix("map read"))
        }

        // MARK: what is said of it

        @Test("that was killed is shown as dead, with its holders, for as long as something of it is there")
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
                // The second time it stands nowhere any more, and is held all the same.
                let detach = Identity.isRoot ? ["umount", "-l", scene.mount] : ["fusermount3", "-uz", scene.mount]
                _ = try Command.run(detach)
            }
            holder.kill()
            let gone = try scene.fixture.grantfs("status", "--json")
            #expect(gone.status == 0 && gone.trimmed == "{\"mounts\":[]}", "\(gone)")
        }

        @Test("that hangs, and its filesystem with it: who holds something of it is found all the same")
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
}

private struct DeadHolder: Decodable { let pid: Int32 }
private struct DeadConfirmation: Decodable {
    let pid: Int32
    let confirmed: Bool
    let state: String?
    let reason: String?
    let holders: [DeadHolder]?
    let ended: [DeadHolder]?
}
private struct DeadRevocation: Decodable { let mounts: [DeadConfirmation] }
private struct DeadStatus: Decodable {
    struct Mount: Decodable {
        let state: String
        let holders: [DeadHolder]
    }
    let mounts: [Mount]
}
