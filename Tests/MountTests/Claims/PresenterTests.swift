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
        func mounted() throws -> (MountFixture, source: String) {
            let fixture = try MountFixture()
            let source = try fixture.source("docs")
            for name in ["a", "b"] { try Data(name.utf8).write(to: URL(fileURLWithPath: "\(source)/\(name)")) }
            try fixture.grant(source)
            try fixture.mount()
            return (fixture, source)
        }

        func ask(_ child: Child, _ line: String, _ answer: String) throws {
            child.send(line)
            try child.expect(answer)
        }

        /// The lines of the log about presenters.
        func passedOver(_ fixture: MountFixture) throws -> [String] {
            try fixture.grantfs("log").orThrow().text.split(separator: "\n").map { String($0) }.filter { $0.contains("passedOver") }
        }

        @Test("A presenter is asked to save before its item is claimed")
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
            // Unsaved data is read in its stored form.
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

        @Test("A presenter of a directory is told about changes of its entries")
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
            // A presenter that does not report a move is detected.
            try write("c", "--", "mv", source + "/c", source + "/d")
            try presenter.expect("told reacquired")
            try presenter.expect("told subitemMoved \(source)/c \(source)/d")
            try write("b", "--", "rm", source + "/b")
            try presenter.expect("told reacquired")
            try presenter.expect("told subitemRemoved \(source)/b")
        }

        @Test("A presenter moves with its item and gets questions at the new place")
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
                try fixture.grantfs("coordinate", "write", source + "/a", "--timeout", "20", "--", "touch", source + "/a").orThrow()
                return presenter.line(within: 0.2)?.hasPrefix("asked") != true
            }
            try fixture.grantfs("coordinate", "write", source + "/c", "--", "true").orThrow()
            while let line = presenter.line(), line != "asked relinquishToWriter \(source)/c" {}
            try presenter.expect("told reacquired")
            try presenter.expect("told changed")
        }

        @Test("A presenter of an item renamed without a claim is told its new place")
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

        @Test("A presenter is asked once about a claim in several mounts")
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

        @Test("A presenter is not asked by claims of its own purpose")
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
            // It was not told about its own claim or its end.
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

        @Test("A thousand presenters occupy no threads of the daemon")
        func aThousand() throws {
            let (fixture, source) = try mounted()
            let probe = try Child([Programs.claimProbe, fixture.store, "presenters", source + "/a", "1000"])
            try probe.expect("1000 presenting", within: 120)
            let daemon = try fixture.daemon(at: fixture.base + "/mount")
            let claimant = try fixture.claimant()
            claimant.send("write \(source)/a")
            try claimant.expect("granted", within: 60)
            // An answer is counted a moment after it was sent.
            try fixture.wait(until: "all have answered") {
                probe.send("count")
                return probe.line() == "1000 answered"
            }
            // Workers that were needed for a moment stand by for ten seconds.
            try fixture.wait(until: "no thread is held for them", within: 60) {
                try FileManager.default.contentsOfDirectory(atPath: "/proc/\(daemon)/task").count < 40
            }
            #expect(try passedOver(fixture) == [])
        }
    }
}
