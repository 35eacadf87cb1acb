import Foundation
import Glibc
import TestSupport
import Testing

/// Presenters that do not answer, lie or end, and claims that are given up meanwhile.
extension MountTests.APresenter {
    @Test("A stopped presenter is passed over and logged until it continues")
    func stopped() throws {
        let (fixture, source) = try mounted()
        let (presenter, claimant) = (try fixture.presenting(source + "/a", patience: 2), try fixture.claimant())
        kill(presenter.pid, SIGSTOP)
        var claims = 0
        /// How long a claim takes, in milliseconds.
        func claim() throws -> Double {
            let begin = Machine.milliseconds
            try ask(claimant, "write \(source)/a", "granted")
            defer { claims += 1 }
            let end = Machine.milliseconds
            try ask(claimant, "end", "granted")
            return end - begin
        }
        #expect(try claim() > 1900)
        try fixture.wait(until: "it is written down") { try passedOver(fixture).contains { $0.contains("it is stopped") } }
        // On a busy machine one may take as long for other reasons.
        try fixture.wait(until: "it is not waited for", within: 60) { try claim() < 1900 }
        kill(presenter.pid, SIGCONT)
        var asked = 0
        while asked < claims, let line = presenter.line() { asked += line == "asked relinquishToWriter \(source)/a" ? 1 : 0 }
        #expect(asked == claims, "what it was asked meanwhile")
        // Its late answer arrived, so the next claim waits for it again.
        try fixture.wait(until: "it is waited for again", within: 60) {
            try fixture.tell(presenter, "hold")
            defer { presenter.send("answer") }
            return try claim() > 1900
        }
    }

    @Test("A silent or killed presenter delays a claim only until its timeout")
    func deaf() throws {
        let (fixture, source) = try mounted()
        let (presenter, claimant) = (try fixture.presenting(source + "/a", patience: 1), try fixture.claimant())
        try fixture.tell(presenter, "never")
        try ask(claimant, "read \(source)/a", "granted")
        try ask(claimant, "end", "granted")
        try fixture.wait(until: "it is written down") { try passedOver(fixture).count == 2 }
        #expect(try passedOver(fixture).allSatisfy { $0.contains("it has not answered in time") })
        let patient = try fixture.presenting(source + "/b", patience: 60)
        try fixture.tell(patient, "hold")
        claimant.send("write \(source)/b")
        try patient.expect("asked relinquishToWriter \(source)/b")
        kill(patient.pid, SIGKILL)
        try claimant.expect("granted")
        try ask(claimant, "end", "granted")
        try fixture.wait(until: "it is written down") {
            try passedOver(fixture).contains { $0.contains("it has ended without an answer") }
        }
        let failing = try fixture.presenting(source + "/b")
        try fixture.tell(failing, "failing")
        try ask(claimant, "read \(source)/b", "granted")
        try fixture.wait(until: "it is written down") { try passedOver(fixture).contains { $0.contains("says that it could not") } }
    }

    @Test("A second answer of a presenter has no effect")
    func twice() throws {
        let (fixture, source) = try mounted()
        let (one, other) = (try fixture.presenting(source + "/a"), try fixture.presenting(source + "/a"))
        let claimant = try fixture.claimant()
        try fixture.tell(one, "twice")
        try fixture.tell(other, "hold")
        for _ in 0..<3 {
            claimant.send("write \(source)/a")
            try one.expect("asked relinquishToWriter \(source)/a")
            try other.expect("asked relinquishToWriter \(source)/a")
            #expect(claimant.line(within: 0.3) == nil)
            other.send("answer")
            try claimant.expect("granted")
            try ask(claimant, "end", "granted")
            for presenter in [one, other] {
                try presenter.expect("told reacquired")
                try presenter.expect("told changed")
            }
        }
    }

    @Test("A claim can be given up while it waits for a presenter")
    func givingUp() throws {
        let (fixture, source) = try mounted()
        let (presenter, claimant, dying) = (
            try fixture.presenting(source + "/a", patience: 60), try fixture.claimant(), try fixture.claimant()
        )
        try fixture.tell(presenter, "hold")
        claimant.send("soon \(source)/a")
        try presenter.expect("asked relinquishToWriter \(source)/a")
        try claimant.expect("error \(ETIMEDOUT)")
        try presenter.expect("told reacquired")
        dying.send("write \(source)/a")
        try presenter.expect("asked relinquishToWriter \(source)/a")
        kill(dying.pid, SIGKILL)
        try presenter.expect("told reacquired")
        claimant.send("write \(source)/a")
        try presenter.expect("asked relinquishToWriter \(source)/a")
        try fixture.revoke("docs")
        try claimant.expect("error \(EACCES)")
        try presenter.expect("told released")
        try presenter.expect("told reacquired")
        try fixture.restore("docs")
        try presenter.expect("told restored")
        try fixture.tell(presenter, "answering")
        try ask(claimant, "write \(source)/a", "granted")
        try presenter.expect("asked relinquishToWriter \(source)/a")
    }

    @Test("A reconnected presenter is told what it missed")
    func resuming() throws {
        let (fixture, source) = try mounted()
        let (presenter, claimant) = (try fixture.presenting(source + "/a"), try fixture.claimant())
        presenter.send("cut")
        try presenter.expect("cut")
        for name in ["a", "b", "a"] {
            try ask(claimant, "write \(source)/\(name)", "granted")
            try ask(claimant, "end", "granted")
        }
        try fixture.grantfs(
            "coordinate", "write", source + "/a", "--for", "moving", "--to", source + "/c", "--", "mv", source + "/a", source + "/c"
        ).orThrow()
        kill(presenter.pid, SIGCONT)
        try presenter.expect("told changed")
        try presenter.expect("told changed")
        try presenter.expect("told moved \(source)/c")
        try fixture.wait(until: "it is asked at its new place") {
            try ask(claimant, "write \(source)/c", "granted")
            try ask(claimant, "end", "granted")
            return presenter.line(within: 0.5) == "asked relinquishToWriter \(source)/c"
        }
    }

    @Test("A presenter is told that its daemon ended, and the next one asks it again")
    func deadDaemon() throws {
        let (fixture, source) = try mounted()
        let (presenter, claimant) = (try fixture.presenting(source + "/a"), try fixture.claimant())
        try fixture.tell(presenter, "hold")
        claimant.send("write \(source)/a")
        try presenter.expect("asked relinquishToWriter \(source)/a")
        try fixture.killDaemon(at: fixture.base + "/mount")
        try claimant.expect("error \(ENOTCONN)")
        try presenter.expect("told reacquired")
        try presenter.expect("told lostDaemon")
        try fixture.mount()
        try presenter.expect("told missed")
        claimant.send("write \(source)/a")
        try presenter.expect("asked relinquishToWriter \(source)/a")
        presenter.send("answer")
        try claimant.expect("granted")
    }

    @Test("A presenter is asked by a mount that was slow to answer at first")
    func slowDaemon() throws {
        let (fixture, source) = try mounted()
        let (presenter, claimant) = (try fixture.presenting(source + "/a"), try fixture.claimant())
        let mountpoint = fixture.base + "/mount"
        try fixture.grantfs("unmount", mountpoint).orThrow()
        try presenter.expect("told lostDaemon")
        kill(presenter.pid, SIGSTOP)
        try fixture.mount()
        let daemon = try fixture.daemon(at: mountpoint)
        kill(daemon, SIGSTOP)
        defer { kill(daemon, SIGCONT) }
        kill(presenter.pid, SIGCONT)
        func isConnecting() -> Bool {
            let threads = "/proc/\(presenter.pid)/task"
            return (try? FileManager.default.contentsOfDirectory(atPath: threads))?.contains {
                (try? String(contentsOfFile: "\(threads)/\($0)/comm", encoding: .utf8)) == "presenter-link\n"
            } ?? false
        }
        try fixture.wait(until: "it connects", within: 20) { isConnecting() }
        try fixture.wait(until: "it has given up for now", within: 20) { !isConnecting() }
        kill(daemon, SIGCONT)
        try presenter.expect("told missed", within: 20)
        claimant.send("write \(source)/a")
        try presenter.expect("asked relinquishToWriter \(source)/a")
        try claimant.expect("granted")
    }

    @Test("Presenters of a process share descriptors, and register again with the next daemon")
    func manyInOneProcess() throws {
        let (fixture, source) = try mounted()
        // More than a daemon takes on one connection.
        let count = 1_200
        let words = [Programs.claimProbe, fixture.store, "presenters", source + "/a", "\(count)"]
        let probe = try Child(["sh", "-c", "ulimit -n 40; exec \"$@\"", "sh"] + words)
        try probe.expect("\(count) presenting", within: 120)
        let claimant = try fixture.claimant()
        /// How many answer before the next claim is granted.
        func answering() throws -> Int {
            func answered() throws -> Int {
                probe.send("count")
                return try #require(probe.line().flatMap { $0.split(separator: " ").first }.flatMap { Int($0) })
            }
            let before = try answered()
            claimant.send("write \(source)/a")
            try claimant.expect("granted", within: 60)
            claimant.send("end")
            try claimant.expect("granted")
            return try answered() - before
        }
        // An answer is counted a moment after it was sent.
        try fixture.wait(until: "all are asked") { try answering() == count }
        try fixture.killDaemon(at: fixture.base + "/mount")
        try fixture.mount()
        try fixture.wait(until: "all are asked again", within: 60) { try answering() == count }
        #expect(try passedOver(fixture) == [])
    }

    @Test("A presenter is refused with the error number of its cause")
    func refusals() throws {
        let (fixture, source) = try mounted()
        func refusal(_ path: String) throws -> String? {
            try Child([Programs.claimProbe, fixture.store, "present", path]).line()
        }
        #expect(try refusal(fixture.base + "/outside") == "error \(ENOENT)")
        #expect(try refusal(source + "/no/such") == "error \(EIO)")
        try fixture.revoke("docs")
        #expect(try refusal(source + "/a") == "error \(EACCES)")
        try fixture.grantfs("unmount", fixture.base + "/mount").orThrow()
        #expect(try refusal(source + "/a") == "error \(ENOTCONN)")
    }

    @Test("A presenter follows a move only if the claimant has claimed the item")
    func lies() throws {
        let (fixture, source) = try mounted()
        let (presenter, claimant) = (try fixture.presenting(source + "/a"), try fixture.claimant())
        try ask(claimant, "write \(source)/b", "granted")
        try ask(claimant, "moved \(source)/a \(source)/c", "granted")
        try ask(claimant, "end", "granted")
        try ask(claimant, "read \(source)/b", "granted")
        try ask(claimant, "moved \(source)/b \(source)/a", "granted")
        try ask(claimant, "write \(source)/a", "granted")
        try presenter.expect("asked relinquishToWriter \(source)/a")
    }

    @Test("A presenter with malformed messages delays no claim")
    func nonsense() throws {
        let (fixture, source) = try mounted()
        let probe = try Child([Programs.claimProbe, fixture.store, "nonsense", source + "/a"])
        for line in [
            "an event to come: false", "answer to nothing: ended", "end of nothing: ended", "twice the number: cut off", "no path: outside",
            "relative: outside",
            "unknown grant: 0 true", "too many: ended", "for ever: 60000",
        ] { try probe.expect(line) }
        try fixture.grantfs("coordinate", "write", source + "/a", "--timeout", "20", "--", "true").orThrow()
    }
}
