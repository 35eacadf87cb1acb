import Foundation
import TestSupport
import Testing

extension MountTests {
    @Suite struct WaitingForALock {
        private func file(_ fixture: MountFixture, _ name: String = "a") throws -> String {
            let source = try fixture.source(name)
            try Data(count: 200).write(to: URL(fileURLWithPath: source + "/file"))
            return source
        }

        /// Processes that lock ranges of a file.
        private func lockers(_ count: Int, _ path: String, _ kind: String = "fcntl") throws -> [Child] {
            try (0..<count).map { _ in
                let locker = try Probe.role(["ranges", path, kind])
                try locker.expect("ready")
                return locker
            }
        }

        /// Each locks a range of its own and then waits for the next one's. The last request would
        /// deadlock. `waiting`: the number of present waiters.
        private func expectDeadlock(_ fixture: MountFixture, _ path: String, _ count: Int, waiting: ([Child]) throws -> Int) throws {
            let lockers = try lockers(count, path)
            for (number, locker) in lockers.enumerated() {
                locker.send("try \(number * 10)")
                try locker.expect("OK")
            }
            for (number, locker) in lockers.dropLast().enumerated() {
                locker.send("wait \((number + 1) * 10)")
                try locker.expect("waiting")
                // In the order of their requests, not in that of the replies.
                try fixture.wait(until: "\(number + 1) wait") { try waiting(lockers) == number + 1 }
            }
            let last = lockers[count - 1]
            last.send("wait 0")
            try last.expect("waiting")
            try last.expect("EDEADLK")
            // The others wait on, and have their locks as those before them end.
            #expect(lockers[0].line(within: 0.1) == nil)
            last.send("free \((count - 1) * 10)")
            try last.expect("OK")
            for (number, locker) in lockers.dropLast().enumerated().reversed() {
                try locker.expect("OK")
                locker.send("free \(number * 10)")
                try locker.expect("OK")
            }
        }

        /// How many requests for locks wait in the fixture's mount.
        private func waiting(_ fixture: MountFixture) throws -> Int {
            Int(try #require(try fixture.metrics().value("grantfs_waiting_locks")))
        }

        @Test("A lock request that would deadlock fails with EDEADLK", arguments: [2, 4], [true, false])
        func deadlocks(count: Int, isNative: Bool) throws {
            let fixture = try MountFixture()
            let source = try file(fixture)
            try fixture.grant(source)
            if isNative {
                try expectDeadlock(fixture, source + "/file", count) { lockers in
                    // proc_locks(5): a waiter has an arrow.
                    Processes.kernelText("/proc/locks").split(separator: "\n").map { $0.split(separator: " ") }
                        .count { line in line.contains("->") && lockers.contains { line.contains("\($0.pid)") } }
                }
            } else {
                try expectDeadlock(fixture, fixture.mount() + "/a/file", count) { _ in try waiting(fixture) }
            }
        }

        @Test("A chain of waiting locks without a deadlock goes on waiting")
        func chains() throws {
            let fixture = try MountFixture()
            try fixture.grant(try file(fixture))
            let mountpoint = try fixture.mount()
            let all = try lockers(3, mountpoint + "/a/file")
            // The first has had what the second wants, in the middle of more, and the ends are still its own.
            for start in [5, 15, 25] {
                all[0].send("try \(start)")
                try all[0].expect("OK")
            }
            all[0].send("free 15")
            try all[0].expect("OK")
            all[2].send("try 15")
            try all[2].expect("OK")
            all[1].send("try 45")
            try all[1].expect("OK")
            all[1].send("wait 15")
            try all[1].expect("waiting")
            try fixture.wait(until: "it waits") { try waiting(fixture) == 1 }
            all[0].send("wait 45")
            try all[0].expect("waiting")
            #expect(all[0].line(within: 0.3) == nil && all[1].line(within: 0.1) == nil)
            all[2].send("free 15")
            try all[2].expect("OK")
            try all[1].expect("OK")
            all[1].send("free 45")
            try all[1].expect("OK")
            try all[0].expect("OK")
        }

        @Test("A hanging source delays no lock of another grant")
        func hangingElsewhere() throws {
            let fixture = try MountFixture()
            let hanging = try HangingSource("hangs", in: fixture)
            defer { hanging.end() }
            try hanging.file("file")
            try fixture.grant(hanging.directory)
            try fixture.grant(try file(fixture))
            let mountpoint = try fixture.mount()
            let held = try Probe.role(["lock", hanging.behind + "/file", "flock", "try"])
            try held.expect("OK")
            let stuck = try Probe.role(["lock", mountpoint + "/hangs/file", "flock", "wait"])
            try stuck.expect("waiting")
            try fixture.wait(until: "it waits") { try waiting(fixture) == 1 }
            // From now on the next try for it does not return.
            try hanging.hang("lock")
            pause(milliseconds: 100)
            let holder = try Probe.role(["lock", mountpoint + "/a/file", "flock", "try"])
            try holder.expect("OK")
            let waiter = try Probe.role(["lock", mountpoint + "/a/file", "flock", "wait"])
            try waiter.expect("waiting")
            pause(milliseconds: 50)
            holder.send("let go")
            try waiter.expect("OK")
            try fixture.revoke("hangs")
            try stuck.expect("EACCES")
        }

        @Test("A hanging source does not block statfs(2) of the root")
        func rootSpace() throws {
            let fixture = try MountFixture()
            let hanging = try HangingSource("hangs", in: fixture)
            defer { hanging.end() }
            try fixture.grant(hanging.directory)
            try fixture.grant(try file(fixture))
            let mountpoint = try fixture.mount()
            let before = try Command.run(["stat", "-f", "-c", "%b", mountpoint]).orThrow().trimmed
            try hanging.hang("statfs")
            for _ in 0..<3 {
                #expect(try Command.run(["stat", "-f", "-c", "%b", mountpoint]).orThrow().trimmed == before)
            }
            hanging.goOn()
        }
    }
}
