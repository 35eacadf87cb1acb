import Foundation
import TestSupport
import Testing

extension MountTests {
    @Suite("A followed log") struct FollowedLog {
        private struct Event: Decodable {
            let number: Int
            let event: String
            let mountpoint: String?
            let path: String?
            let newPath: String?
            let name: String?
            let pid: Int?
            let detail: String?
        }

        /// `grantfs log --follow --json`, and the events that it has shown until now.
        private final class Follower {
            private let child: Child
            private(set) var events: [Event] = []

            init(_ fixture: MountFixture, _ options: String...) throws {
                child = try Child([Programs.grantfs, "log", "--follow", "--json"] + options, environment: fixture.environment)
                // It shows events after its start, so an event is repeated until it shows.
                try fixture.wait(until: "it follows") {
                    try fixture.grantfs("coordinate", "read", "docs", "--", "true").orThrow()
                    return (try? take(within: 0.3)) == true
                }
                // Events come in order, so later events follow these.
                try fixture.grantfs("coordinate", "read", fixture.base + "/source/docs/a", "--", "true").orThrow()
                try see("claimEnded") { $0.path == fixture.base + "/source/docs/a" }
                events = []
            }

            /// Takes the next event. False when none comes in time.
            private func take(within seconds: Double) throws -> Bool {
                guard let line = child.line(within: seconds) else { return false }
                events.append(try JSONDecoder().decode(Event.self, from: Data(line.utf8)))
                return true
            }

            func stop() { kill(child.pid, SIGSTOP) }
            func goOn() { kill(child.pid, SIGCONT) }

            /// Waits until that has been seen, and gives it.
            @discardableResult
            func see(_ kind: String, within seconds: Double = 15, where fits: (Event) -> Bool = { _ in true }) throws -> Event {
                let deadline = Date().addingTimeInterval(seconds)
                while true {
                    if let place = events.firstIndex(where: { $0.event == kind && fits($0) }) { return events.remove(at: place) }
                    guard Date() < deadline, try take(within: deadline.timeIntervalSinceNow) else {
                        throw TestFailure("“\(kind)” did not come, but \(events.map(\.event))")
                    }
                }
            }
        }

        private let fixture: MountFixture
        private let source: String
        private let mountpoint: String

        init() throws {
            fixture = try MountFixture()
            source = try fixture.source("docs")
            try Data("text".utf8).write(to: URL(fileURLWithPath: source + "/a"))
            try fixture.grant(source)
            mountpoint = try fixture.mount()
        }

        @Test("`log --follow` shows events of grants, mounts and refusals")
        func grants() throws {
            let follower = try Follower(fixture)
            try fixture.grant(try fixture.source("other"))
            try follower.see("granted") { $0.name == "other" }
            try fixture.grantfs("set", "other", "--access", "read-only").orThrow()
            try follower.see("changed") { $0.name == "other" }
            let second = try fixture.mount(at: "second")
            try follower.see("mounted") { $0.detail?.contains(second) == true }
            try fixture.grantfs("unmount", second).orThrow()
            try follower.see("unmounted")
            // In the log, and by the mount that has shut it.
            try fixture.revoke("docs")
            try follower.see("revoked") { $0.name == "docs" }
            try follower.see("revoked") { $0.mountpoint == mountpoint && $0.path == source }
            _ = try Command.run(["cat", mountpoint + "/docs/a"])
            try follower.see("denied") { $0.name == "docs" }
            try fixture.restore("docs")
            try follower.see("restored") { $0.name == "docs" }
            try fixture.grantfs("remove", "other").orThrow()
            try follower.see("removed") { $0.name == "other" }
        }

        @Test("`log --follow` shows a moved directory and an expired grant")
        func findings() throws {
            let follower = try Follower(fixture)
            let moved = fixture.base + "/source/moved"
            #expect(rename(source, moved) == 0)
            try follower.see("bookmarkMoved") { $0.name == "docs" }
            try fixture.grant(try fixture.source("short"), name: nil, view: nil, "--expires", "1s")
            try follower.see("expired") { $0.name == "short" }
        }

        @Test("`log --follow` shows each step of a claim with its number")
        func claims() throws {
            let follower = try Follower(fixture)
            let (one, other) = (try fixture.claimant(), try fixture.claimant())
            one.send("write \(source)/a")
            try one.expect("granted")
            let granted = try follower.see("claimGranted") { $0.path == source + "/a" }
            #expect(granted.pid == Int(one.pid) && granted.detail == "write" && granted.mountpoint == mountpoint)
            other.send("read \(source)")
            let waits = try follower.see("claimWaits") { $0.path == source }
            #expect(waits.pid == Int(other.pid) && waits.number > granted.number)
            one.send("end")
            try one.expect("granted")
            let ended = try follower.see("claimEnded") { $0.path == source + "/a" }
            try other.expect("granted")
            #expect(try follower.see("claimGranted") { $0.path == source }.number > ended.number)
            other.closeInput()
            try follower.see("claimEnded") { $0.path == source }
            try fixture.grantfs(
                "coordinate", "write", source + "/a", "--for", "moving", "--to", source + "/b", "--", "mv", source + "/a", source + "/b"
            ).orThrow()
            let moved = try follower.see("moved") { $0.path == source + "/a" }
            #expect(moved.newPath == source + "/b")
        }

        @Test("`log --follow` reports the end of a mount and goes on with its successor")
        func anotherMount() throws {
            let follower = try Follower(fixture)
            try fixture.killDaemon(at: mountpoint)
            try follower.see("ended") { $0.mountpoint == mountpoint }
            try fixture.mount()
            try follower.see("mounted")
            let claimant = try fixture.claimant()
            // The mount is listened to within a moment.
            try fixture.wait(until: "its events are shown") {
                claimant.send("write \(source)/a")
                try claimant.expect("granted")
                claimant.send("end")
                try claimant.expect("granted")
                return (try? follower.see("claimEnded", within: 0.5)) != nil
            }
        }

        @Test("`log --follow` loses no event when it falls behind")
        func leftBehind() throws {
            // Long names, so that few events fill the queue of a slow reader.
            let deep = source + String(repeating: "/" + String(repeating: "d", count: 200), count: 16)
            try FileManager.default.createDirectory(atPath: deep, withIntermediateDirectories: true)
            let follower = try Follower(fixture)
            let claimant = try fixture.claimant()
            func claim(_ path: String) throws {
                claimant.send("write \(path)")
                try claimant.expect("granted")
                claimant.send("end")
                try claimant.expect("granted")
            }
            try claim(source + "/first")
            let first = try follower.see("claimGranted") { $0.path == source + "/first" }
            follower.stop()
            for number in 0..<800 { try claim("\(deep)/\(number)") }
            try claim(source + "/last")
            follower.goOn()
            let last = try follower.see("claimEnded", within: 30) { $0.path == source + "/last" }
            let numbers = follower.events.filter { $0.mountpoint == mountpoint && $0.number > first.number }.map(\.number)
            #expect(numbers == Array(first.number + 1..<last.number), "\(numbers.count) of \(last.number - first.number - 1)")
            #expect(last.number - first.number == 2 * 801 + 1 && !follower.events.contains { $0.event == "missed" || $0.event == "ended" })
        }

        @Test("`log --follow --grant` and `--view` show events of those grants only")
        func selected() throws {
            try fixture.grant(try fixture.source("other"))
            try fixture.grant(try fixture.source("third"), view: "separate")
            try fixture.mount("separate", at: "separate")
            let ofGrant = try Child([Programs.grantfs, "log", "--follow", "--grant", "other"], environment: fixture.environment)
            let ofView = try Child([Programs.grantfs, "log", "--follow", "--view", "separate"], environment: fixture.environment)
            defer { [ofGrant, ofView].forEach { $0.kill() } }
            for (follower, name) in [(ofGrant, "other"), (ofView, "third")] {
                var lines: [String] = []
                try fixture.wait(until: "a claim of “\(name)” is shown") {
                    for grant in ["docs", "third", "other"] { try fixture.grantfs("coordinate", "read", grant, "--", "true").orThrow() }
                    while let line = follower.line(within: 0.3) { lines.append(line) }
                    return lines.contains { $0.contains("claimEnded \(fixture.base)/source/\(name)") }
                }
                try fixture.revoke("docs")
                try fixture.revoke(name)
                try fixture.wait(until: "the revocation of “\(name)” is shown") {
                    while let line = follower.line(within: 0.3) { lines.append(line) }
                    return lines.contains { $0.contains("revoked \(name)") }
                }
                #expect(lines.allSatisfy { $0.contains("/source/\(name)") || $0.contains("revoked \(name)") }, "\(lines)")
                try fixture.restore("docs")
                try fixture.restore(name)
            }
        }

        @Test("`log --follow` ends on SIGINT, and when its reader closes the pipe")
        func ends() throws {
            let follower = try Child([Programs.grantfs, "log", "--follow", "-n", "1"], environment: fixture.environment)
            #expect(follower.line(within: 60) != nil)
            kill(follower.pid, SIGINT)
            #expect(follower.wait(within: 20) != nil)
            // No event follows the one that the reader takes.
            let script = "\"$0\" log --follow -n 1 | head -n 1"
            let output = try Command.run(["sh", "-c", script, Programs.grantfs], environment: fixture.environment, within: 30)
            #expect(output.status == 0 && output.lines.count == 1, "\(output)")
        }

        @Test("`log --follow` prints a line for each event")
        func lines() throws {
            let child = try Child([Programs.grantfs, "log", "--follow"], environment: fixture.environment)
            var line: String?
            try fixture.wait(until: "it says that a claim was granted") {
                try fixture.grantfs("coordinate", "read", "docs", "--", "true").orThrow()
                // It may have begun to follow within an earlier claim, and then says first that that one ended.
                repeat { line = child.line(within: 0.3) } while line?.contains("claimGranted") == false
                return line != nil
            }
            #expect(line?.contains("claimGranted \(source): read  [mount \(mountpoint), pid ") == true, "\(line ?? "nothing")")
        }
    }
}
