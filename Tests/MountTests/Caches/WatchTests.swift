import Foundation
import TestSupport
import Testing

extension MountTests {
    @Suite("The watch command") struct Watching {
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

        /// `grantfs watch --json`, and the events that it has shown until now.
        private final class Watcher {
            private let child: Child
            private(set) var events: [Event] = []

            init(_ fixture: MountFixture) throws {
                child = try Child([Programs.grantfs, "watch", "--json"], environment: fixture.environment)
                // It shows events after its start, so an event is repeated until it shows.
                try fixture.wait(until: "it watches") {
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

        @Test("`watch` shows events of grants, mounts and refusals")
        func grants() throws {
            let watcher = try Watcher(fixture)
            try fixture.grant(try fixture.source("other"))
            try watcher.see("granted") { $0.name == "other" }
            try fixture.grantfs("set", "other", "--access", "read-only").orThrow()
            try watcher.see("changed") { $0.name == "other" }
            let second = try fixture.mount(at: "second")
            try watcher.see("mounted") { $0.detail?.contains(second) == true }
            try fixture.grantfs("unmount", second).orThrow()
            try watcher.see("unmounted")
            // In the log, and by the mount that has shut it.
            try fixture.revoke("docs")
            try watcher.see("revoked") { $0.name == "docs" }
            try watcher.see("revoked") { $0.mountpoint == mountpoint && $0.path == source }
            _ = try Command.run(["cat", mountpoint + "/docs/a"])
            try watcher.see("denied") { $0.name == "docs" }
            try fixture.restore("docs")
            try watcher.see("restored") { $0.name == "docs" }
            try fixture.grantfs("remove", "other").orThrow()
            try watcher.see("removed") { $0.name == "other" }
        }

        @Test("`watch` shows a moved directory and an expired grant")
        func findings() throws {
            let watcher = try Watcher(fixture)
            let moved = fixture.base + "/source/moved"
            #expect(rename(source, moved) == 0)
            try watcher.see("bookmarkMoved") { $0.name == "docs" }
            try fixture.grant(try fixture.source("short"), name: nil, view: nil, "--expires", "1s")
            try watcher.see("expired") { $0.name == "short" }
        }

        @Test("`watch` shows each step of a claim with its number")
        func claims() throws {
            let watcher = try Watcher(fixture)
            let (one, other) = (try fixture.claimant(), try fixture.claimant())
            one.send("write \(source)/a")
            try one.expect("granted")
            let granted = try watcher.see("claimGranted") { $0.path == source + "/a" }
            #expect(granted.pid == Int(one.pid) && granted.detail == "write" && granted.mountpoint == mountpoint)
            other.send("read \(source)")
            let waits = try watcher.see("claimWaits") { $0.path == source }
            #expect(waits.pid == Int(other.pid) && waits.number > granted.number)
            one.send("end")
            try one.expect("granted")
            let ended = try watcher.see("claimEnded") { $0.path == source + "/a" }
            try other.expect("granted")
            #expect(try watcher.see("claimGranted") { $0.path == source }.number > ended.number)
            other.closeInput()
            try watcher.see("claimEnded") { $0.path == source }
            try fixture.grantfs(
                "coordinate", "write", source + "/a", "--for", "moving", "--to", source + "/b", "--", "mv", source + "/a", source + "/b"
            ).orThrow()
            let moved = try watcher.see("moved") { $0.path == source + "/a" }
            #expect(moved.newPath == source + "/b")
        }

        @Test("`watch` reports the end of a mount and goes on with its successor")
        func anotherMount() throws {
            let watcher = try Watcher(fixture)
            try fixture.killDaemon(at: mountpoint)
            try watcher.see("ended") { $0.mountpoint == mountpoint }
            try fixture.mount()
            try watcher.see("mounted")
            let claimant = try fixture.claimant()
            // The mount is listened to within a moment.
            try fixture.wait(until: "its events are shown") {
                claimant.send("write \(source)/a")
                try claimant.expect("granted")
                claimant.send("end")
                try claimant.expect("granted")
                return (try? watcher.see("claimEnded", within: 0.5)) != nil
            }
        }

        @Test("`watch` loses no event when it falls behind")
        func leftBehind() throws {
            // Long names, so that few events fill the queue of a slow reader.
            let deep = source + String(repeating: "/" + String(repeating: "d", count: 200), count: 16)
            try FileManager.default.createDirectory(atPath: deep, withIntermediateDirectories: true)
            let watcher = try Watcher(fixture)
            let claimant = try fixture.claimant()
            func claim(_ path: String) throws {
                claimant.send("write \(path)")
                try claimant.expect("granted")
                claimant.send("end")
                try claimant.expect("granted")
            }
            try claim(source + "/first")
            let first = try watcher.see("claimGranted") { $0.path == source + "/first" }
            watcher.stop()
            for number in 0..<800 { try claim("\(deep)/\(number)") }
            try claim(source + "/last")
            watcher.goOn()
            let last = try watcher.see("claimEnded", within: 30) { $0.path == source + "/last" }
            let numbers = watcher.events.filter { $0.mountpoint == mountpoint && $0.number > first.number }.map(\.number)
            #expect(numbers == Array(first.number + 1..<last.number), "\(numbers.count) of \(last.number - first.number - 1)")
            #expect(last.number - first.number == 2 * 801 + 1 && !watcher.events.contains { $0.event == "missed" || $0.event == "ended" })
        }

        @Test("`watch` prints a line for each event")
        func lines() throws {
            let child = try Child([Programs.grantfs, "watch"], environment: fixture.environment)
            var line: String?
            try fixture.wait(until: "it says that a claim was granted") {
                try fixture.grantfs("coordinate", "read", "docs", "--", "true").orThrow()
                // It may have begun to watch within an earlier claim, and then says first that that one ended.
                repeat { line = child.line(within: 0.3) } while line?.contains("claimGranted") == false
                return line != nil
            }
            #expect(line?.contains("claimGranted \(source): read  [mount \(mountpoint), pid ") == true, "\(line ?? "nothing")")
        }
    }
}
