import GrantControl
import Foundation
import GrantModel
import GrantStore
import GrantSystem
import Testing

@testable import GrantAdministration
@testable import GrantMounts

@Suite struct ChangeBroadcastTests {
    @Test("A change asks every mount of its view")
    func everyMountOfTheViewIsAsked() throws {
        let bench = try Bench()
        let handlers = [Confirming(), Confirming(), Confirming()]
        let servers = try handlers.indices.map { index in
            try ControlServer(directory: bench.store.runDirectory, name: "\(index).sock", handler: handlers[index])
        }
        defer { for server in servers { server.stop() } }
        for index in 0..<2 { _ = try bench.register(socket: "\(index).sock") }
        _ = try bench.register(view: "other", socket: "2.sock")
        let grant = try bench.grant("a")
        let change = try #require(try bench.administrator.revoke([grant]).first)
        #expect(change.isConfirmed)
        #expect(change.mounts.map(\.confirmed) == [true, true])
        #expect(change.mounts.map(\.drained) == [2, 2])
        #expect(handlers.map { $0.asked.withLock { $0.count } } == [2, 2, 0])
        #expect(handlers[0].asked.withLock { $0.last } == .apply(grants: [grant.id], timeoutMilliseconds: 10_000))
    }

    @Test("A change names the unconfirmed mount, and the revocation stays recorded")
    func aMountThatDoesNotConfirmIsNamedAndTheRecordStays() throws {
        let bench = try Bench()
        let grant = try bench.grant("a")
        let (good, slow) = (Confirming(), Confirming(confirms: false))
        let servers = [
            try ControlServer(directory: bench.store.runDirectory, name: "good", handler: good),
            try ControlServer(directory: bench.store.runDirectory, name: "slow", handler: slow),
        ]
        defer { for server in servers { server.stop() } }
        for name in ["good", "slow", "absent"] { _ = try bench.register(socket: name) }
        let start = Clock.monotonic
        // Enough time for a daemon that answers. The command waits this long for a silent one,
        // instead of the usual time.
        let change = try #require(try bench.administrator.revoke([grant], timeout: 4).first)
        #expect(Clock.monotonic - start < Int64(GrantAdministrator.standardTimeout * 1e9))
        #expect(!change.isConfirmed)
        #expect(change.mounts.map(\.confirmed) == [true, false, false])
        #expect(change.mounts.filter { $0.reason != nil }.count == 2)
        #expect(try bench.store.grant(grant.id)?.state == .revoked)
        #expect(try bench.store.mounts().count == 3)
    }

    @Test("A command asks the new daemon of a mount that was handed over")
    func aMountThatWasHandedOver() throws {
        let bench = try Bench()
        let server = try ControlServer(directory: bench.store.runDirectory, name: "a", handler: Confirming())
        defer { server.stop() }
        let record = try bench.register(socket: "a")
        let before = MountRecord(
            id: record.id, shown: record.shown, mountpoint: record.mountpoint, pid: .max, processStart: 1, bootID: record.bootID,
            socket: record.socket, since: record.since)
        let request = ControlRequest.apply(grants: [], timeoutMilliseconds: 1000)
        guard case .success(.applied) = Daemons.ask(before, request, of: bench.store, deadline: Clock.deadline(seconds: 30)) else {
            Issue.record("the new daemon was not asked")
            return
        }
        #expect(try bench.store.deadMounts(of: [before], until: .max).isEmpty)
        #expect(try bench.store.mounts().map(\.id) == [record.id], "it stays on record")
        #expect(access("\(bench.store.runDirectory)/a", F_OK) == 0, "and can be asked")
    }

    @Test("A dead daemon needs no confirmation and is forgotten")
    func aDeadDaemonNeedsNoConfirmationAndIsForgotten() throws {
        let bench = try Bench()
        let grant = try bench.grant("a")
        let own = try #require(ProcessIdentity.own)
        let others = [
            ProcessIdentity(pid: own.pid, start: own.start + 1, bootID: own.bootID),
            ProcessIdentity(pid: own.pid, start: own.start, bootID: "another boot"),
            ProcessIdentity(pid: .max, start: 1, bootID: own.bootID),
        ]
        for (index, process) in others.enumerated() { _ = try bench.register(socket: "\(index)", process: process) }
        let change = try #require(try bench.administrator.revoke([grant]).first)
        #expect(change.isConfirmed)
        #expect(change.mounts.isEmpty)
        #expect(try bench.store.mounts().isEmpty)
    }

    /// In another PID namespace the number is meaningless, but a daemon that answers is alive.
    @Test("A daemon that answers counts as alive despite its recorded PID")
    func aDaemonThatAnswersIsAliveWhateverItsNumber() throws {
        let bench = try Bench()
        let grant = try bench.grant("a")
        let server = try ControlServer(directory: bench.store.runDirectory, name: "s", handler: Confirming(confirms: false))
        defer { server.stop() }
        _ = try bench.register(socket: "s", process: ProcessIdentity(pid: .max, start: 1, bootID: "x"))
        let change = try #require(try bench.administrator.revoke([grant], timeout: 60).first)
        #expect(change.mounts.map(\.confirmed) == [false])
    }

    @Test("A change waits for a daemon that is starting")
    func aDaemonThatStartsIsWaitedFor() throws {
        let bench = try Bench()
        let grant = try bench.grant("a")
        _ = try bench.register(socket: "late")
        let directory = bench.store.runDirectory
        let server = Lock<ControlServer?>(nil)
        let thread = try WorkerThread.start("late") {
            usleep(200_000)
            let made = try? ControlServer(directory: directory, name: "late", handler: Confirming())
            server.withLock { $0 = made }
        }
        let change = try #require(try bench.administrator.revoke([grant], timeout: 60).first)
        #expect(change.isConfirmed)
        #expect(change.mounts.count == 1)
        thread.join()
        server.withLock { $0 }?.stop()
    }

    @Test("`status` names the reason for a silent daemon")
    func statusTellsOfWhoDoesNotAnswer() throws {
        let bench = try Bench()
        _ = try bench.register(socket: "none")
        let reports = try bench.administrator.status(timeout: 0.1)
        #expect(reports.count == 1)
        #expect(reports.first?.unresponsiveReason != nil)
        #expect(reports.first?.status == nil)
    }
}

@Suite struct HolderTests {
    /// The search uses the device, so any filesystem will do: this process holds files on that of
    /// its own directory. On btrfs, /proc/PID/maps shows another device than the subvolume's.
    @Test("A process is found by its open file and its mapping")
    func aProcessIsFoundByWhatItHolds() throws {
        let bench = try Bench()
        let path = bench.root + "/held\n"
        #expect(FileManager.default.createFile(atPath: path, contents: Data(repeating: 1, count: 4096)))
        let file = try FileDescriptor.open(path.utf8, O_RDONLY)
        let mapping = mmap(nil, 4096, PROT_READ, MAP_PRIVATE, file.number, 0)
        defer { munmap(mapping, 4096) }
        let device = try DeviceNumber.withoutAsking(path)
        let holders = try #require(Holder.search(of: [device], until: .max).holders[device])
        let own = try #require(holders.first { $0.pid == getpid() })
        #expect(own.kinds.contains(.fd))
        let maps = try String(decoding: File.contents(of: "/proc/self/maps".utf8), as: UTF8.self)
        let shown = String(format: " %02x:%02x ", device.major, device.minor)
        let isShown = maps.split(separator: "\n").contains { $0.contains(shown) && $0.contains("/held") }
        #expect(own.kinds.contains(.mmap) == isShown)
        #expect(own.paths.contains(Array(path.utf8)))
        #expect(!own.command.isEmpty)
    }

    @Test("A device that does not exist has no holders")
    func nothingIsHeldOfADeviceThatIsNotThere() {
        let device = DeviceNumber(major: 4095, minor: 77)
        #expect(Holder.search(of: [device], until: .max).holders.isEmpty)
    }

    @Test("Processes that are not inspected in time are reported as unseen")
    func whoeverThereIsNoTimeToLookAtIsNamedAsSuch() throws {
        let device = try DeviceNumber.withoutAsking("/")
        let search = Holder.search(of: [device], until: Clock.monotonic)
        #expect(!search.unseen.isEmpty && search.unseen.allSatisfy(\.wasSkipped))
        // IDs of no process: another test may have a process that must not be inspected again.
        let pids = (1...1000).map { Int32.max - $0 }
        let outcome = ProcessInspector.inspect(pids, until: Clock.deadline(seconds: 0.1)) { _, _ in usleep(20_000) }
        #expect(outcome.found.count < 1000 && outcome.found.count + outcome.unseen.count == 1000)
        #expect(!outcome.skipped.isEmpty && outcome.skipped.isSubset(of: outcome.unseen))
        let long = ProcessInspector.inspect([Int32.max]) { _, onProgress in
            for _ in 0..<60 {
                usleep(30_000)
                onProgress()
            }
        }
        #expect(long.unseen.isEmpty, "what takes long does not hang")
    }
}
