import Foundation
import Glibc
import TestSupport
import Testing

extension MountTests {
    @Suite struct ThePresentCommand {
        private func mounted() throws -> (MountFixture, source: String) {
            let fixture = try MountFixture()
            let source = try fixture.source("docs")
            try Data("old\n".utf8).write(to: URL(fileURLWithPath: source + "/note"))
            try fixture.grant(source)
            try fixture.mount()
            return (fixture, source)
        }

        /// `grantfs present`, once it is registered.
        private func presenting(_ fixture: MountFixture, _ arguments: String...) throws -> Child {
            let child = try Child([Programs.grantfs, "present"] + arguments, environment: fixture.environment, separateErrors: true)
            guard child.line()?.contains("presenting") == true else { throw TestFailure("it does not present: \(arguments)") }
            return child
        }

        private func events(_ child: Child, _ count: Int) throws -> [[String: Any]] {
            try (0..<count).map { _ in
                let line = try #require(child.line())
                return try #require(try JSONSerialization.jsonObject(with: Data(line.utf8)) as? [String: Any])
            }
        }

        @Test("`present` runs a command whose save completes before the claim is granted")
        func saving() throws {
            let (fixture, source) = try mounted()
            // To save, it needs a claim like any other writer.
            let save = "sleep 0.3; \(Programs.grantfs) coordinate write note --timeout 30 -- sh -c 'echo saved > note'"
            let presenter = try presenting(
                fixture, source + "/note", "--timeout", "60", "--on-relinquish", "true", "--on-save", "cd \(source); \(save)")
            let output = try fixture.grantfs("coordinate", "read", "docs", "--", "cat", source + "/note").orThrow()
            #expect(output.trimmed == "saved")
            #expect(presenter.line()?.hasPrefix("relinquishToReader \(source) for process ") == true)
            #expect(presenter.line()?.hasPrefix("save \(source) for process ") == true)
            try presenter.expect("reacquired \(source)/note")
            kill(presenter.pid, SIGTERM)
            #expect(presenter.wait() == -SIGTERM)
        }

        @Test("`present --json` prints each event and passes it to commands")
        func events() throws {
            let (fixture, source) = try mounted()
            let log = fixture.base + "/log"
            let note = "echo \"$GRANTFS_EVENT $GRANTFS_PATH $GRANTFS_ITEM $GRANTFS_NEW_PATH\" | tee -a \(log)"
            let presenter = try presenting(
                fixture, "docs", "--json", "--on-delete", note, "--on-change", note, "--on-reacquire", note, "--on-release", note)
            try fixture.grantfs(
                "coordinate", "write", source + "/note", "--for", "moving", "--to", source + "/other", "--", "mv", source + "/note",
                source + "/other"
            ).orThrow()
            let moved = try events(presenter, 3)
            #expect(moved.map { $0["event"] as? String } == ["relinquishToWriter", "subitemMoved", "reacquired"])
            #expect(moved[0]["path"] as? String == source + "/note" && moved[0]["seconds"] as? Double == 5)
            #expect((moved[0]["pid"] as? Int ?? 0) > 0)
            #expect(moved[1]["newPath"] as? String == source + "/other")
            try fixture.grantfs("coordinate", "write", source + "/other", "--for", "deleting", "--", "rm", source + "/other").orThrow()
            let deleted = try events(presenter, 4).map { $0["event"] as? String }
            #expect(deleted == ["relinquishToWriter", "accommodateDeletion", "reacquired", "subitemRemoved"])
            try fixture.revoke("docs")
            try fixture.restore("docs")
            #expect(try events(presenter, 2).map { $0["event"] as? String } == ["released", "restored"])
            try fixture.wait(until: "all commands have run") {
                (try? String(contentsOfFile: log, encoding: .utf8).split(separator: "\n").count) == 7
            }
            let lines = try String(contentsOfFile: log, encoding: .utf8).split(separator: "\n")
            // Questions and events are two queues. Each is in order.
            #expect(lines.first { !$0.hasPrefix("accommodate") } == "subitemMoved \(source) \(source)/note \(source)/other")
            #expect(lines.contains("accommodateDeletion \(source) \(source)/other "))
            #expect(lines.contains("released \(source) \(source) "))
        }

        @Test("`present` is passed over if its command exceeds the timeout")
        func slow() throws {
            let (fixture, source) = try mounted()
            // It ends when it is told to, or after a minute.
            let command = """
                for turn in $(seq 600); do if [ -e \(fixture.base)/go ]; then touch \(fixture.base)/done; break; fi; sleep 0.1; done
                """
            let words = [Programs.grantfs, "present", source + "/note", "--timeout", "0.5", "--on-relinquish", command]
            let presenter = try Child(["sh", "-c", "exec \"$@\" 2>&1", "sh"] + words, environment: fixture.environment)
            try presenter.expect("presenting \(source)/note")
            try fixture.grantfs("coordinate", "write", source + "/note", "--", "test", "!", "-e", fixture.base + "/done").orThrow()
            var isSaid = false
            while !isSaid, let line = presenter.line() { isSaid = line.contains("passed over") }
            #expect(isSaid)
            #expect(access(fixture.base + "/done", F_OK) != 0)
            #expect(FileManager.default.createFile(atPath: fixture.base + "/go", contents: nil))
            try fixture.wait(until: "the command has ended") { access(fixture.base + "/done", F_OK) == 0 }
        }

        @Test(
            "`present` works for a plain user's own mount",
            .enabled(if: Machine.usersCanMount, Comment(rawValue: Machine.usersCannotMount)))
        func plainUsers() throws {
            let owner = try #require(Machine.plainUser)
            let fixture = try MountFixture(owner: owner)
            let source = try fixture.source("docs")
            try fixture.grant(source)
            try fixture.mount()
            let presenter = try Child([Programs.grantfs(for: owner), "present", "docs"], identity: owner, environment: fixture.environment)
            try presenter.expect("presenting \(source)")
            try fixture.grantfs("coordinate", "write", "docs", "--", "true").orThrow()
            #expect(presenter.line()?.hasPrefix("relinquishToWriter \(source)") == true)
        }

        @Test("`present` refuses invalid arguments and ungranted items")
        func usage() throws {
            let (fixture, source) = try mounted()
            #expect(try fixture.grantfs("present").status == 2)
            for time in ["0", "61", "x"] { #expect(try fixture.grantfs("present", source, "--timeout", time).status == 2) }
            #expect(try fixture.grantfs("present", fixture.base + "/outside").status == 1)
            try fixture.revoke("docs")
            #expect(try fixture.grantfs("present", "docs").status == 1)
        }
    }

    @Suite struct ARevocationWithGrace {
        private struct Graced: Decodable {
            struct Grace: Decodable { let asked: Int, answered: Int, milliseconds: Double }
            let name: String
            let grace: Grace?
        }

        private func mounted() throws -> (MountFixture, source: String) {
            let fixture = try MountFixture()
            let source = try fixture.source("docs")
            try Data("old".utf8).write(to: URL(fileURLWithPath: source + "/a"))
            try fixture.grant(source)
            try fixture.mount()
            return (fixture, source)
        }

        /// `errors`: what it says on stderr while it waits.
        private func revoke(
            _ fixture: MountFixture, _ arguments: String...
        ) throws -> (grace: Graced.Grace?, milliseconds: Double, errors: String) {
            let begin = Machine.milliseconds
            let output = try fixture.grantfs(["revoke", "docs", "--json"] + arguments).orThrow()
            let documents: [Graced] = try output.decoded()
            return (documents[0].grace, Machine.milliseconds - begin, output.errors)
        }

        @Test("A revocation with grace lets presenters save through the mount first")
        func saving() throws {
            let (fixture, source) = try mounted()
            let save = "echo new > \(fixture.base)/mount/docs/a"
            let presenter = try Child(
                [Programs.grantfs, "present", "docs", "--on-revoke", "echo $GRANTFS_SECONDS > \(fixture.base)/seconds", "--on-save", save],
                environment: fixture.environment)
            try presenter.expect("presenting \(source)")
            let (grace, milliseconds, errors) = try revoke(fixture, "--grace", "60s")
            #expect(errors.contains("\"done\":1,\"total\":1"))
            #expect(grace?.asked == 1 && grace?.answered == 1 && milliseconds < 20_000)
            #expect(try String(contentsOfFile: source + "/a", encoding: .utf8) == "new\n")
            #expect(access(fixture.base + "/seconds", F_OK) == 0)
            #expect(try fixture.list("--all")[0].state == "revoked")
        }

        @Test("A revocation with grace takes effect at its deadline")
        func late() throws {
            let (fixture, source) = try mounted()
            let presenters = try (0..<4).map { _ in try fixture.presenting(source + "/a", patience: 60) }
            for presenter in presenters.prefix(1) { try fixture.tell(presenter, "hold") }
            kill(presenters[1].pid, SIGSTOP)
            kill(presenters[2].pid, SIGKILL)
            var (grace, milliseconds) = (Graced.Grace?.none, 0.0)
            // The answering presenter may take longer on a busy machine.
            for seconds in [1, 5, 15] where grace?.answered != 1 {
                if grace != nil { try fixture.restore("docs") }
                (grace, milliseconds, _) = try revoke(fixture, "--grace", "\(seconds)")
                // On a busy machine the daemon gets the request later and has that much less time.
                #expect(milliseconds >= Double(seconds) * 1000 && grace?.milliseconds ?? 0 > 0)
            }
            // The dead one may have been forgotten by then.
            #expect(grace.map { (3...4).contains($0.asked) && $0.answered == 1 } == true, "\(String(describing: grace))")
            try presenters[0].expect("asked revocation \(source)/a")
            try presenters[0].expect("asked save \(source)/a")
            try presenters[0].expect("told released")
        }

        @Test("A revocation without grace asks no presenters")
        func plain() throws {
            let (fixture, source) = try mounted()
            #expect(try revoke(fixture, "--grace", "60s").grace?.asked == 0)
            try fixture.restore("docs")
            let presenter = try fixture.presenting(source + "/a")
            try fixture.tell(presenter, "hold")
            // A presenter would not answer for a minute.
            #expect(try revoke(fixture).grace == nil)
            try presenter.expect("told released")
            try fixture.restore("docs")
            try presenter.expect("told restored")
            // Presenters of other grants get no question.
            try fixture.grant(try fixture.source("other"))
            let output = try fixture.grantfs("revoke", "other", "--grace", "1m", "--json").orThrow()
            let documents: [Graced] = try output.decoded()
            #expect(documents[0].grace?.asked == 0)
            for time in ["x", "-1", "2d"] { #expect(try fixture.grantfs("revoke", "docs", "--grace", time).status == 2) }
            #expect(try fixture.list()[0].state == "active")
        }

        @Test("A revocation with grace keeps its deadline while the daemon is stopped")
        func stoppedDaemon() throws {
            let (fixture, source) = try mounted()
            let presenter = try fixture.presenting(source + "/a", patience: 60)
            try fixture.tell(presenter, "hold")
            let daemon = try fixture.daemon(at: fixture.base + "/mount")
            defer { kill(daemon, SIGCONT) }
            var status: Int32?
            // On a busy machine the grace may be over before the daemon is stopped.
            for seconds in [2, 15] where status != 3 {
                if status != nil { try fixture.restore("docs") }
                let begin = Machine.milliseconds
                let revoking = try Child(
                    [Programs.grantfs, "revoke", "docs", "--grace", "\(seconds)", "--timeout", "0.5"], environment: fixture.environment)
                while let line = presenter.line(), line != "asked revocation \(source)/a" {}
                kill(daemon, SIGSTOP)
                status = revoking.wait(within: 40)
                kill(daemon, SIGCONT)
                #expect(Machine.milliseconds - begin > Double(seconds) * 1000 - 100)
            }
            #expect(status == 3)
        }
    }
}
