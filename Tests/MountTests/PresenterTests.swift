import Foundation
import Glibc
import TestSupport
import Testing

extension MountFixture {
    /// A program that presents an item and says what it hears.
    func presenting(_ path: String, patience: Double = 60, purpose: String? = nil) throws -> Child {
        let child = try Child([Programs.claimProbe, store, "present", path, String(patience)] + (purpose.map { [$0] } ?? []))
        try child.expect("presenting")
        return child
    }

    /// Tells it how to answer, and returns when it knows.
    func tell(_ presenter: Child, _ manner: String) throws {
        let known = "\(base)/manner-\(UUID().uuidString)"
        presenter.send("\(manner) \(known)")
        try wait(until: "it knows how to answer") { access(known, F_OK) == 0 }
    }
}

extension MountTests {
    @Suite struct APresenter {
        /// A mount of a grant `docs` with the files `a` and `b`.
        private func mounted() throws -> (MountFixture, source: String) {
            let fixture = try MountFixture()
            let source = try fixture.source("docs")
            for name in ["a", "b"] { try Data(name.utf8).write(to: URL(fileURLWithPath: "\(source)/\(name)")) }
            try fixture.grant(source)
            try fixture.mount()
            return (fixture, source)
        }

        private func ask(_ child: Child, _ line: String, _ answer: String) throws {
            child.send(line)
            try child.expect(answer)
        }

        /// The lines of the log about presenters.
        private func passedOver(_ fixture: MountFixture) throws -> [String] {
            try fixture.grantfs("log").orThrow().text.split(separator: "\n").map { String($0) }.filter { $0.contains("passedOver") }
        }

        @Test("is asked to make way and to save before its item is claimed, which waits for the answers, and is told when that is over")
        func asking() throws {
            let (fixture, source) = try mounted()
            let (presenter, claimant) = (try fixture.presenting(source + "/a"), try fixture.claimant())
            try fixture.tell(presenter, "hold")
            claimant.send("read \(source)/a")
            try presenter.expect("asked relinquishToReader \(source)/a")
            try presenter.expect("asked save \(source)/a")
            #expect(claimant.line(within: 0.3) == nil)
            presenter.send("answer")
            try claimant.expect("granted")
            try ask(claimant, "end", "granted")
            try presenter.expect("told reacquired")
            try fixture.tell(presenter, "answering")
            // What is not saved is read as it is.
            try ask(claimant, "peek \(fixture.base)/mount/docs/a", "granted")
            try presenter.expect("asked relinquishToReader \(source)/a")
            try ask(claimant, "end", "granted")
            try presenter.expect("told reacquired")
            // A directory is claimed with all that lies below.
            try ask(claimant, "write \(source)", "granted")
            try presenter.expect("asked relinquishToWriter \(source)")
            try ask(claimant, "end", "granted")
            try presenter.expect("told reacquired")
            try presenter.expect("told changed")
            // Another file is not its business.
            try ask(claimant, "write \(source)/b", "granted")
            try ask(claimant, "end", "granted")
            #expect(try fixture.grantfs("coordinate", "write", source + "/a", "--for", "deleting", "--", "rm", source + "/a").status == 0)
            try presenter.expect("asked relinquishToWriter \(source)/a")
            try presenter.expect("asked accommodateDeletion \(source)/a")
            try presenter.expect("told reacquired")
            try presenter.expect("told changed")
            #expect(try passedOver(fixture) == [])
        }

        @Test("of a directory is told what became of what lies below it: new, changed, moved, removed")
        func subitems() throws {
            let (fixture, source) = try mounted()
            let presenter = try fixture.presenting(source)
            func write(_ name: String, _ words: String...) throws {
                try fixture.grantfs(["coordinate", "write", "\(source)/\(name)"] + words).orThrow()
                try presenter.expect("asked relinquishToWriter \(source)/\(name)")
            }
            try write("new", "--", "touch", source + "/new")
            try presenter.expect("told reacquired")
            try presenter.expect("told subitemAppeared \(source)/new")
            // Saved by renaming another over it.
            try write("a", "--", "sh", "-c", "echo x > \(source)/a~ && mv \(source)/a~ \(source)/a")
            try presenter.expect("told reacquired")
            try presenter.expect("told subitemChanged \(source)/a")
            try write("a", "--for", "moving", "--to", source + "/c", "--", "mv", source + "/a", source + "/c")
            try presenter.expect("told subitemMoved \(source)/a \(source)/c")
            try presenter.expect("told reacquired")
            // Whoever says nothing of it is found out.
            try write("c", "--", "mv", source + "/c", source + "/d")
            try presenter.expect("told reacquired")
            try presenter.expect("told subitemMoved \(source)/c \(source)/d")
            try write("b", "--", "rm", source + "/b")
            try presenter.expect("told reacquired")
            try presenter.expect("told subitemRemoved \(source)/b")
        }

        @Test("goes with its item when that is moved: it is told, and asked where it is now")
        func moving() throws {
            let (fixture, source) = try mounted()
            let presenter = try fixture.presenting(source + "/a")
            try fixture.grantfs(
                "coordinate", "write", source + "/a", "--for", "moving", "--to", source + "/c", "--", "mv", source + "/a", source + "/c"
            ).orThrow()
            try presenter.expect("asked relinquishToWriter \(source)/a")
            try presenter.expect("told moved \(source)/c")
            try presenter.expect("told reacquired")
            // Another that takes its old place is another item.
            try fixture.wait(until: "it is known at its new place") {
                try fixture.grantfs("coordinate", "write", source + "/a", "--timeout", "5", "--", "touch", source + "/a").orThrow()
                return presenter.line(within: 0.2)?.hasPrefix("asked") != true
            }
            try fixture.grantfs("coordinate", "write", source + "/c", "--", "true").orThrow()
            while let line = presenter.line(), line != "asked relinquishToWriter \(source)/c" {}
            try presenter.expect("told reacquired")
            try presenter.expect("told changed")
        }

        @Test("whose item was renamed without a claim is told so when it is asked about it, and hears of it from then on")
        func renamed() throws {
            let (fixture, source) = try mounted()
            let (presenter, claimant) = (try fixture.presenting(source + "/a"), try fixture.claimant())
            rename(source + "/a", source + "/c")
            try ask(claimant, "write \(source)/c", "granted")
            try presenter.expect("told moved \(source)/c")
            try presenter.expect("asked relinquishToWriter \(source)/c")
            try ask(claimant, "end", "granted")
            try presenter.expect("told reacquired")
            try presenter.expect("told changed")
        }

        @Test("is asked once about a claim that several mounts take, and let back once it has ended in all")
        func severalMounts() throws {
            let (fixture, source) = try mounted()
            try fixture.grant(source, view: "other")
            try fixture.mount("other", at: "second")
            let presenter = try fixture.presenting(source + "/a", purpose: "editor")
            let (own, other) = (try fixture.claimant(), try fixture.claimant())
            own.send("as editor")
            try own.expect("granted")
            try fixture.tell(presenter, "hold")
            other.send("read \(source)/a")
            try presenter.expect("asked relinquishToReader \(source)/a")
            try presenter.expect("asked save \(source)/a")
            // To save it claims in both, one of which the other may hold soon.
            try ask(own, "write \(source)/a", "granted")
            try ask(own, "end", "granted")
            presenter.send("answer")
            try other.expect("granted")
            try ask(other, "end", "granted")
            try presenter.expect("told reacquired")
            try fixture.revoke("docs", "--view", "other")
            try fixture.tell(presenter, "answering")
            try ask(other, "write \(source)/a", "granted")
            try presenter.expect("asked relinquishToWriter \(source)/a")
            try ask(other, "end", "granted")
            try presenter.expect("told reacquired")
            try presenter.expect("told changed")
        }

        @Test("is not asked by claims of its own purpose, which go before the claim that it is asked for: so it can save")
        func purposes() throws {
            let (fixture, source) = try mounted()
            let presenter = try fixture.presenting(source + "/a", purpose: "editor")
            let (own, other) = (try fixture.claimant(), try fixture.claimant())
            own.send("as editor")
            try own.expect("granted")
            try ask(own, "write \(source)/a", "granted")
            try ask(own, "end", "granted")
            try fixture.tell(presenter, "hold")
            other.send("read \(source)/a")
            // Neither its own claim nor the end of that was said to it.
            try presenter.expect("asked relinquishToReader \(source)/a")
            try presenter.expect("asked save \(source)/a")
            try ask(own, "write \(source)/a", "granted")
            presenter.send("answer")
            #expect(other.line(within: 0.3) == nil, "what was let in before is waited for")
            try ask(own, "end", "granted")
            try other.expect("granted")
            own.send("write \(source)/a")
            #expect(own.line(within: 0.3) == nil, "whoever has answered waits like all others")
            try ask(other, "end", "granted")
            try own.expect("granted")
        }

        @Test("that is stopped is passed over after its time, written down, and not waited for until it goes on")
        func stopped() throws {
            let (fixture, source) = try mounted()
            let (presenter, claimant) = (try fixture.presenting(source + "/a", patience: 2), try fixture.claimant())
            kill(presenter.pid, SIGSTOP)
            let begin = Machine.milliseconds
            try ask(claimant, "write \(source)/a", "granted")
            #expect((1900..<8000).contains(Machine.milliseconds - begin))
            try ask(claimant, "end", "granted")
            try fixture.wait(until: "it is written down") { try passedOver(fixture).contains { $0.contains("it is stopped") } }
            let again = Machine.milliseconds
            try ask(claimant, "write \(source)/a", "granted")
            #expect(Machine.milliseconds - again < 1900)
            try ask(claimant, "end", "granted")
            kill(presenter.pid, SIGCONT)
            var asked = 0
            while asked < 2, let line = presenter.line() { asked += line == "asked relinquishToWriter \(source)/a" ? 1 : 0 }
            #expect(asked == 2, "what it was asked meanwhile")
            // It has been heard, late as it was: so it is waited for again.
            try fixture.wait(until: "it is waited for again") {
                try fixture.tell(presenter, "hold")
                let begin = Machine.milliseconds
                try ask(claimant, "write \(source)/a", "granted")
                let hasWaited = Machine.milliseconds - begin > 1900
                try ask(claimant, "end", "granted")
                presenter.send("answer")
                return hasWaited
            }
        }

        @Test("that never answers, or has been killed, holds nobody up for longer than its time; one that could not save is written down")
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
            try claimant.expect("granted", within: 5)
            try ask(claimant, "end", "granted")
            try fixture.wait(until: "it is written down") {
                try passedOver(fixture).contains { $0.contains("it has ended without an answer") }
            }
            let failing = try fixture.presenting(source + "/b")
            try fixture.tell(failing, "failing")
            try ask(claimant, "read \(source)/b", "granted")
            try fixture.wait(until: "it is written down") { try passedOver(fixture).contains { $0.contains("says that it could not") } }
        }

        @Test("may answer twice: the second answer counts for nothing else")
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

        @Test("that is waited for keeps nobody from giving up: by time, by death, by a revocation; and is told that it is over")
        func givingUp() throws {
            let (fixture, source) = try mounted()
            let (presenter, claimant, dying) = (
                try fixture.presenting(source + "/a", patience: 60), try fixture.claimant(), try fixture.claimant()
            )
            try fixture.tell(presenter, "hold")
            claimant.send("soon \(source)/a")
            try presenter.expect("asked relinquishToWriter \(source)/a")
            try claimant.expect("error \(ETIMEDOUT)", within: 5)
            try presenter.expect("told reacquired")
            dying.send("write \(source)/a")
            try presenter.expect("asked relinquishToWriter \(source)/a")
            kill(dying.pid, SIGKILL)
            try presenter.expect("told reacquired")
            claimant.send("write \(source)/a")
            try presenter.expect("asked relinquishToWriter \(source)/a")
            let begin = Machine.milliseconds
            try fixture.revoke("docs")
            #expect(Machine.milliseconds - begin < 5000)
            try claimant.expect("error \(EACCES)", within: 2)
            try presenter.expect("told released")
            try presenter.expect("told reacquired")
            try fixture.restore("docs")
            try presenter.expect("told restored")
            try fixture.tell(presenter, "answering")
            try ask(claimant, "write \(source)/a", "granted")
            try presenter.expect("asked relinquishToWriter \(source)/a")
        }

        @Test("whose connection breaks misses nothing: it is told what happened meanwhile, and asked again")
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

        @Test("learns that the daemon has ended, and is asked by the next one")
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

        @Test("is refused where no grant leads, where it is revoked, and where nothing is mounted")
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

        @Test("believes of moves only who has claimed what is said to have moved")
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

        @Test("that talks nonsense harms nobody, and none is waited for longer than a minute")
        func nonsense() throws {
            let (fixture, source) = try mounted()
            let probe = try Child([Programs.claimProbe, fixture.store, "nonsense", source + "/a"])
            for line in [
                "answer to nothing: ended", "end of nothing: ended", "twice the number: cut off", "no path: outside", "relative: outside",
                "unknown grant: 0 true", "too many: ended", "for ever: 60000",
            ] { try probe.expect(line) }
            try fixture.grantfs("coordinate", "write", source + "/a", "--timeout", "5", "--", "true").orThrow()
        }

        @Test("is one of a thousand, all of whom are asked by one claim, and no thread of the daemon is held for them")
        func aThousand() throws {
            let (fixture, source) = try mounted()
            let probe = try Child([Programs.claimProbe, fixture.store, "presenters", source + "/a", "1000"])
            try probe.expect("1000 presenting", within: 60)
            let daemon = try fixture.daemon(at: fixture.base + "/mount")
            let claimant = try fixture.claimant()
            claimant.send("write \(source)/a")
            try claimant.expect("granted", within: 20)
            try ask(probe, "count", "1000 answered")
            #expect(try FileManager.default.contentsOfDirectory(atPath: "/proc/\(daemon)/task").count < 40)
            #expect(try passedOver(fixture) == [])
        }
    }
}
