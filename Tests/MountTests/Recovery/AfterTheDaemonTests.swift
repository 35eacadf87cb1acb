import Foundation
import TestSupport
import Testing

extension MountTests {
    /// What a holder has of a mount when its daemon has ended, in order or not.
    @Suite struct AfterTheDaemon {
        // MARK: an end in order

        @Test(
            "A daemon that ends in order leaves no cached data and keeps every write",
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
            "A daemon unmounts on SIGTERM although the source of one grant hangs",
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

        @Test("A detached daemon that ends leaves a newer mount at its place", .enabled(if: Identity.isRoot))
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
            "A killed daemon leaves no cached data to its holders",
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
            // No process is left that would keep the connection, or the processes beside it.
            try scene.fixture.wait(until: "the keeper has ended") { Processes.keepers(of: scene.mount).isEmpty }
            #expect(holder.wait(within: 0) == nil, "nobody is ended")
        }

        @Test(
            "A user's killed daemon leaves no cached data to its holders",
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
            "A revocation of a dead mount waits until its keeper has invalidated the cache",
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
            "A killed daemon with a hanging thread leaves no other cached data",
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

        @Test(
            "A revocation finds the holders of a cut connection, and `--kill` ends them",
            .enabled(if: Identity.isRoot), arguments: ["shared", "exclusive"])
        func cut(cache: String) throws {
            let scene = try Scene(cache: cache)
            let holder = try scene.holder(["map"])
            let keepers = Processes.keepers(of: scene.mount)
            #expect(keepers.count == 1)
            for keeper in keepers { kill(keeper, SIGKILL) }
            // It is busy and stays mounted. The connection is cut nevertheless.
            _ = try Command.run(["umount", "-f", scene.mount])
            try scene.awaitEnd()
            // After 6.18 the kernel keeps cached data under write-back, and then no process can
            // invalidate it: docs/conformance.md, “What differs”.
            let keeps = cache == "exclusive" && Machine.kernel > (6, 18)
            let said = try Self.said(holder)
            #expect(said.hasPrefix("map SIGBUS") || (keeps && said.hasPrefix("map read")), "\(said)")
            try scene.mountAgain()
            try expectHeld(scene, by: holder)
            #expect(try scene.revoke("--kill").status == 0)
            #expect(holder.wait() == -SIGKILL)
        }
    }
}
