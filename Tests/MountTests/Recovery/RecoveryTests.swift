import Foundation
import Glibc
import TestSupport
import Testing

extension MountTests {
    /// A daemon that dies while its mount is used, and is followed by another one: `mount -o
    /// recover`. `AnUpgrade` tests the state that survives.
    @Suite struct RecoveryTests {
        static let deaths = [Succession.Way.death, .deathOnOldKernel]

        @Test(
            "A revocation during a daemon's death is confirmed once it is in force",
            arguments: ["shared", "exclusive"], deaths)
        func revokedMeanwhile(cache: String, _ way: Succession.Way) throws {
            let scene = try Succession(way, cache: cache, switches: ["GRANTFS_TEST_RECOVER": "slow taken"])
            let holder = try scene.holder(["map", "fd", "cwd"])
            kill(try scene.fixture.daemon(at: scene.mount), SIGKILL)
            let revoked = try scene.fixture.grantfs("revoke", "a", "--timeout", "60", "--json")
            #expect(revoked.status == 0, "\(revoked)")
            #expect(try Succession.said(holder) == "map SIGBUS fd EACCES cwd EACCES")
            #expect(access(scene.mount + "/a/file", R_OK) == -1 && errno == EACCES)
            #expect(try scene.fixture.status().mounts.count == 1)
        }

        @Test(
            "A withdrawn grant stays refused through many deaths of daemons", arguments: deaths)
        func withdrawnLongAgo(_ way: Succession.Way) throws {
            let scene = try Succession(way, switches: ["GRANTFS_TEST_CRASHES": "20"])
            let holder = try scene.holder(["map", "fd", "cwd"])
            #expect(try scene.fixture.grantfs("revoke", "a").status == 0)
            for turn in 1...5 {
                try scene.replaceDaemon()
                // The daemon inspects the remains every second.
                usleep(1_300_000)
                #expect(try Succession.said(holder) == "map SIGBUS fd EACCES cwd EACCES", "after \(turn) deaths")
            }
        }

        @Test("A successor takes over more descriptors than its start limit", arguments: deaths)
        func manyDescriptors(_ way: Succession.Way) throws {
            let scene = try Succession(way, limits: ["--nofile=200:1024"])
            var opened: [Int32] = []
            defer { for descriptor in opened { close(descriptor) } }
            // Until there are no more.
            for number in 0..<1024 {
                let descriptor = open("\(scene.mount)/a/f\(number)", O_CREAT | O_RDWR | O_CLOEXEC, 0o644)
                if descriptor < 0 { break }
                opened.append(descriptor)
            }
            #expect(opened.count > 300)
            try scene.replaceDaemon(2)
            for descriptor in opened { #expect(write(descriptor, "x", 1) == 1) }
            #expect(try Data(contentsOf: URL(fileURLWithPath: scene.source + "/f299")) == Data("x".utf8))
        }

        @Test(
            "A successor refuses a grant withdrawn before its first reply",
            arguments: deaths)
        func revokedByWhoIsGone(_ way: Succession.Way) throws {
            // It has read the store by then, and does not look again for a time.
            let scene = try Succession(way, switches: ["GRANTFS_TEST_RECOVER": "held taken,slow begun"])
            // Not this process: what it starts would close the file, and wait for that.
            let reader = try Child([
                "python3", "-I", "-c",
                """
                import os, sys
                file = os.open(sys.argv[1], os.O_RDONLY); print('ready', flush=True); sys.stdin.readline()
                try: print(os.pread(file, 1, 8191))
                except OSError as error: print(error.errno)
                """, scene.mount + "/a/file",
            ])
            try reader.expect("ready")
            try scene.killAndHold()
            let revoking = try Child([Programs.grantfs, "revoke", "a", "--timeout", "60"], environment: scene.fixture.environment)
            try scene.fixture.wait(until: "the revocation is recorded") {
                try scene.fixture.list().allSatisfy { $0.state != "active" }
            }
            kill(revoking.pid, SIGKILL)
            scene.goOn()
            // The kernel has nothing of the last page.
            reader.send("read")
            try reader.expect(([EACCES] + (Machine.losesErrorsOfReads ? [EIO] : [])).map { String($0) })
            #expect(access(scene.mount + "/a/other", F_OK) == -1 && errno == EACCES)
        }

        @Test("A withdrawal interrupted by a daemon's death is completed by the next one")
        func midWithdrawal() throws {
            for turn in 0..<6 {
                let scene = try Succession(.death)
                let holder = try scene.holder(["map", "fd", "cwd"])
                let daemon = try scene.fixture.daemon(at: scene.mount)
                let revoking = try Child(
                    [Programs.grantfs, "revoke", "a", "--timeout", "60", "--json"], environment: scene.fixture.environment)
                usleep(UInt32(turn) * 4_000)
                kill(daemon, SIGKILL)
                #expect(revoking.wait() == 0)
                #expect(try Succession.said(holder) == "map SIGBUS fd EACCES cwd EACCES", "killed after \(turn * 4) ms")
            }
        }

        @Test("A read-only grant stays read-only after a daemon's death")
        func narrowed() throws {
            let scene = try Succession(.death)
            let early = open(scene.mount + "/a/file", O_RDWR | O_CLOEXEC)
            defer { close(early) }
            #expect(try scene.fixture.grantfs("set", "a", "--access", "read-only").status == 0)
            try scene.replaceDaemon()
            #expect(write(early, "x", 1) == -1 && [EROFS, EACCES, EBADF].contains(errno), "\(errno)")
            #expect(open(scene.mount + "/a/file", O_RDWR) == -1 && errno == EROFS)
            var byte: UInt8 = 0
            #expect(pread(early, &byte, 1, 0) == 1)
            #expect(try scene.fixture.grantfs("set", "a", "--access", "read-write").status == 0)
            let late = open(scene.mount + "/a/file", O_RDWR | O_CLOEXEC)
            defer { close(late) }
            #expect(late >= 0 && write(late, "x", 1) == 1)
        }

        @Test("A request that kills every daemon gives EIO and the mount goes on", arguments: deaths)
        func deadlyRequest(_ way: Succession.Way) throws {
            let scene = try Succession(way, switches: ["GRANTFS_TEST_TRAP": "locked"])
            let asked = try Command.run(["stat", "-f", scene.mount + "/a/file"])
            #expect(asked.status != 0 && asked.errors.contains("Input/output error"), "\(asked)")
            #expect(try String(contentsOfFile: scene.mount + "/a/file", encoding: .utf8).count == 8192)
            #expect(try scene.fixture.status().mounts.count == 1)
        }

        @Test("A daemon that dies too often is not replaced, and its mount is dead")
        func crashLoop() throws {
            let scene = try Succession(.death, switches: ["GRANTFS_TEST_CRASHES": "2"])
            let holder = try scene.holder(["map", "fd", "cwd"])
            try scene.replaceDaemon(2)
            try scene.fixture.killDaemon(at: scene.mount)
            try scene.fixture.wait(until: "the mount is dead") { access(scene.mount + "/a", F_OK) == -1 && errno == ENOTCONN }
            try scene.fixture.wait(until: "the keeper has made the kernel forget") {
                try Succession.said(holder) == "map SIGBUS fd ENOTCONN cwd ENOTCONN"
            }
            let status = try scene.fixture.grantfs("status")
            #expect(status.status == 1 && status.errors.contains("again and again"), "\(status)")
        }

        @Test("A mount is dead if each successor dies as it takes over")
        func successorDies() throws {
            let scene = try Succession(.death, switches: ["GRANTFS_TEST_RECOVER": "taken", "GRANTFS_TEST_CRASHES": "2"])
            let holder = try scene.holder(["map", "fd", "cwd"])
            kill(try scene.fixture.daemon(at: scene.mount), SIGKILL)
            try scene.fixture.wait(until: "the mount is dead") { access(scene.mount + "/a", F_OK) == -1 && errno == ENOTCONN }
            try scene.fixture.wait(until: "the keeper has made the kernel forget") {
                try Succession.said(holder) == "map SIGBUS fd ENOTCONN cwd ENOTCONN"
            }
        }

        @Test("A mount is dead after its successors hang as they take over")
        func successorsGetStuck() throws {
            let scene = try Succession(
                .death, switches: ["GRANTFS_TEST_RECOVER": "stuck taken", "GRANTFS_TEST_CRASHES": "1000", "GRANTFS_TEST_PATIENCE": "1"])
            let holder = try scene.holder(["map", "fd", "cwd"])
            kill(try scene.fixture.daemon(at: scene.mount), SIGKILL)
            try scene.fixture.wait(until: "the mount is dead") { access(scene.mount + "/a", F_OK) == -1 && errno == ENOTCONN }
            try scene.fixture.wait(until: "the keeper has made the kernel forget") {
                try Succession.said(holder) == "map SIGBUS fd ENOTCONN cwd ENOTCONN"
            }
            #expect(try scene.fixture.grantfs("status").status == 1)
        }

        @Test("A successor that dies before it serves is replaced by exactly one daemon")
        func successorDiesArmed() throws {
            let scene = try Succession(.death, switches: ["GRANTFS_TEST_RECOVER": "first armed"])
            let holder = try scene.holder(["map", "fd", "cwd"])
            let first = try scene.fixture.daemon(at: scene.mount)
            kill(first, SIGKILL)
            #expect(try Succession.said(holder).hasPrefix("map read fd read cwd seen"))
            // A successor would start immediately.
            usleep(500_000)
            let daemons = try Command.run(["pgrep", "-f", "recover --store \(scene.fixture.base)/store"]).text.split(separator: "\n")
            // It, and its supervisor.
            #expect(daemons.count == 2, "\(daemons)")
        }

        @Test(
            "A slow keeper does not take a mount with a new daemon for dead",
            arguments: [Succession.Way.upgrade, .death])
        func slowKeeper(_ way: Succession.Way) throws {
            // A keeper that has heard nothing for half a second looks at the processes. With this it does so a second later.
            let succession = try Succession(way, switches: ["GRANTFS_TEST_KEEPER_PAUSE": "1000"])
            for _ in 0..<3 {
                usleep(600_000)
                try succession.replaceDaemon()
            }
            // The keeper of the last but one may need that long.
            usleep(1_600_000)
            #expect(FileManager.default.contents(atPath: succession.mount + "/a/file")?.count == 8192)
        }

        @Test("An upgraded daemon that dies is replaced as well")
        func upgraded() throws {
            let scene = try Succession(.death)
            let holder = try scene.holder(["map", "fd", "cwd"])
            #expect(try scene.fixture.grantfs("upgrade", scene.mount).status == 0)
            try scene.replaceDaemon(2)
            #expect(try scene.fixture.grantfs("upgrade", scene.mount).status == 0)
            #expect(try Succession.said(holder).hasPrefix("map read fd read cwd seen"))
            #expect(try scene.fixture.revoke("a").allSatisfy { $0.mounts.allSatisfy { $0.confirmed } })
            #expect(try Succession.said(holder) == "map SIGBUS fd EACCES cwd EACCES")
        }

        @Test("A mount is dead if its supervisor dies with the daemon")
        func bothDie() throws {
            let scene = try Succession(.death)
            let holder = try scene.holder(["map", "fd", "cwd"])
            let daemon = try scene.fixture.daemon(at: scene.mount)
            let supervisors = Processes.children(of: daemon).filter { Processes.name(of: $0) == "grantfs-superv" }
            #expect(supervisors.count == 1)
            kill(supervisors[0], SIGKILL)
            #expect(try Succession.said(holder).hasPrefix("map read fd read cwd seen"))
            try scene.fixture.killDaemon(at: scene.mount)
            try scene.fixture.wait(until: "the mount is dead") { access(scene.mount + "/a", F_OK) == -1 && errno == ENOTCONN }
            try scene.fixture.wait(until: "the keeper has made the kernel forget") {
                try Succession.said(holder) == "map SIGBUS fd ENOTCONN cwd ENOTCONN"
            }
        }

        @Test("A daemon that ends in order leaves no processes")
        func endsInOrder() throws {
            let scene = try Succession(.death)
            let daemon = try scene.fixture.daemon(at: scene.mount)
            let others = Processes.children(of: daemon)
            #expect(others.count == 2)
            #expect(try scene.fixture.grantfs("unmount", scene.mount).status == 0)
            try scene.fixture.wait(until: "all have ended") { ([daemon] + others).allSatisfy { !Processes.isRunning($0) } }
        }
    }
}
