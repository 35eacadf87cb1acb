import Foundation
import TestSupport
import Testing

extension MountTests {
    @Suite("Idle processors", .enabled(if: FileManager.default.isWritableFile(atPath: "/dev/cpu_dma_latency")))
    struct IdleProcessors {
        private let fixture: MountFixture

        init() throws {
            fixture = try MountFixture()
            try fixture.grant(try fixture.source("a"))
        }

        private func polled() throws -> Double {
            try #require(try fixture.metrics().value("grantfs_idle_polling_seconds_total", [:]))
        }

        private func holdsDevice(_ other: MountFixture? = nil) throws -> Bool {
            let pid = try #require(try (other ?? fixture).status().mounts.first?.pid)
            let files = FileManager.default
            return try files.contentsOfDirectory(atPath: "/proc/\(pid)/fd").contains {
                (try? files.destinationOfSymbolicLink(atPath: "/proc/\(pid)/fd/\($0)")) == "/dev/cpu_dma_latency"
            }
        }

        @Test("Processors poll while requests come quickly and halt soon after")
        func polling() throws {
            let mountpoint = try fixture.mount(options: "cache=none,idle=poll")
            #expect(try polled() < 0.05, "a few requests are no reason")
            // Several at once, so that requests come quickly on a busy machine as well.
            let deadline = Machine.milliseconds + 60_000
            while try polled() < 0.05, Machine.milliseconds < deadline {
                DispatchQueue.concurrentPerform(iterations: 4) { _ in
                    for _ in 0..<2000 { _ = access(mountpoint + "/a", F_OK) }
                }
            }
            #expect(try polled() >= 0.05)
            // Asking costs no request of the kernel. On a busy machine the thread that looks comes late.
            try fixture.wait(until: "processors halt again") {
                let before = try polled()
                usleep(200_000)
                return try polled() == before
            }
        }

        @Test("Processors do not poll with `idle=halt`")
        func halting() throws {
            let mountpoint = try fixture.mount(options: "cache=none,idle=halt")
            for _ in 0..<2000 { _ = access(mountpoint + "/a", F_OK) }
            #expect(try !holdsDevice() && polled() == 0)
        }

        @Test(
            "A user's mount with `idle=poll` warns if the device is not writable",
            .enabled(if: Machine.usersCanMount, Comment(rawValue: Machine.usersCannotMount)))
        func forUsers() throws {
            let theirs = try MountFixture(owner: Machine.plainUser!)
            try theirs.grant(try theirs.source("a"))
            let mounted = try theirs.grantfs("mount", "default", theirs.base + "/mount", "-o", "idle=poll")
            #expect(mounted.status == 0 && mounted.errors.contains("/dev/cpu_dma_latency: Permission denied"), "\(mounted)")
        }

        @Test(
            "A user's mount with `idle=poll` holds the device if root permits it",
            .enabled(if: Machine.usersCanMount && Identity.isRoot, "needs root"), .enabled(if: Machine.offers("systemd-tmpfiles")))
        func forUsersWhoMay() throws {
            let device = "/dev/cpu_dma_latency"
            let user = Machine.pollingUser!
            let theirs = try MountFixture(owner: user)
            try theirs.grant(try theirs.source("a"))
            let line = theirs.base + "/line.conf"
            try "a+ \(device) - - - - u:\(user.uid):rw\n".write(toFile: line, atomically: false, encoding: .utf8)
            defer {
                let script = "import os, sys; os.removexattr(sys.argv[1], 'system.posix_acl_access'); os.chmod(sys.argv[1], 0o600)"
                _ = try? Command.run(["python3", "-c", script, device])
            }
            try Command.run(["systemd-tmpfiles", "--create", line]).orThrow()
            let mounted = try theirs.grantfs("mount", "default", theirs.base + "/mount", "-o", "idle=poll")
            #expect(mounted.status == 0 && !mounted.errors.contains(device), "\(mounted)")
            #expect(try holdsDevice(theirs))
        }

        @Test("An invalid value of `idle` is a usage error that names it")
        func wrongWord() throws {
            let result = try fixture.grantfs("mount", "default", fixture.base + "/mount", "-o", "idle=spin")
            #expect(result.status == 2 && result.errors.contains("idle=spin") && result.errors.contains("auto, poll or halt"))
        }
    }
}
