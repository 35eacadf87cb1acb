import Foundation
import Glibc
import TestSupport
import Testing

extension GrantPortalTests {
    /// From the moment in which the next service reads what there is, the former one changes nothing.
    @Suite struct HandOvers {
        private let app = "org.test.App"

        /// The next service has the name, and waits. Without a limit of its own, so that a test goes on where it does not wait.
        private func waitForWaiting(_ session: PortalSession) {
            try? session.fixture.wait(until: "the next service waits", within: 5) { session.said.contains("waits until") }
        }

        private func expectRevocable(_ id: String, _ session: PortalSession, _ name: String = "report.txt") throws {
            let path = "\(session.view(of: app))/\(id)/\(name)"
            #expect(text(path) == "old\n")
            #expect(try session.permissions(of: id)?[app] == ["read"])
            let held = try #require(FileHandle(forReadingAtPath: path))
            let answer = try session.host.call("RevokePermissions", "(ssas)", [id, app, ["read"]])
            #expect(answer.error == nil, "\(answer)")
            #expect(text(path) == nil)
            #expect(throws: (any Error).self) { try held.read(upToCount: 1) }
            #expect(try session.permissions(of: id)?[app] == nil)
        }

        @Test("A document made during a handover belongs to the next service")
        func underWay() throws {
            let session = try PortalSession(hasStore: false)
            let store = try PlayedStore(session)
            try session.start()
            let file = try session.file()
            let another = try session.host.addFull([file], flags: 2, app: app, ["read"]).id
            let program = try session.another()
            // Before it makes anything it asks for the document that there is of this file.
            try store.hold()
            try program.begin(PortalClient.request("AddFull", "(ahusas)", [[0], 2, app, ["read"]], open: [file]))
            try session.fixture.wait(until: "the permission store is asked") { try store.held == 1 }
            let first = try #require(session.portal)
            try session.launch(["--replace"])
            waitForWaiting(session)
            try store.release()
            let answer = PortalAnswer(try program.answer())
            #expect(answer.error == nil && answer.id != another, "\(answer)")
            #expect(first.wait(within: 30) == 0)
            try session.waitForAnswer()
            for id in [answer.id, another] { try expectRevocable(id, session) }
        }

        @Test(
            "Each document made during many handovers can be revoked")
        func manyRounds() throws {
            let session = try PortalSession.started()
            let file = try session.file()
            let program = try session.another()
            var ids: [String] = []
            for _ in 0..<4 {
                let request = PortalClient.request("AddFull", "(ahusas)", [[0], 2, app, ["read"]], open: [file])
                try program.begin(["burst": [[String: Any]](repeating: request, count: 60)])
                usleep(UInt32.random(in: 0...200_000))
                let first = try #require(session.portal)
                try session.start("--replace")
                ids += try program.answers().filter { $0.error == nil }.map(\.id)
                #expect(first.wait(within: 30) == 0)
            }
            #expect(!ids.isEmpty)
            let shown = ids.filter { text("\(session.view(of: app))/\($0)/report.txt") == "old\n" }
            #expect(shown.count == ids.count)
            for id in ids { #expect(try session.host.call("RevokePermissions", "(ssas)", [id, app, ["read"]]).error == nil) }
            let left = ids.filter { text("\(session.view(of: app))/\($0)/report.txt") != nil }
            #expect(left.isEmpty, "\(left.count) of \(ids.count)")
        }

        @Test("A service that does not hand over is killed and its documents are kept")
        func stopped() throws {
            let session = try PortalSession.started()
            let id = try session.host.addFull([try session.file()], flags: 2, app: app, ["read"]).id
            let first = try #require(session.portal)
            kill(first.pid, SIGSTOP)
            try session.start("--replace")
            #expect(session.said.contains("the former service (process \(first.pid)) has not handed over the documents, and is killed"))
            let status = try #require(first.wait(within: 30))
            #expect(status != 0)
            try expectRevocable(id, session)
        }

        @Test(
            "A hanging call of a replaced service delays no other call",
            .enabled(if: Identity.isRoot, "needs root"))
        func hangingFile() throws {
            let session = try PortalSession.started()
            let source = try HangingSource("slow", in: session.fixture)
            defer { source.end() }
            try source.file("report.txt")
            let id = try session.host.addFull([try session.file()], flags: 2, app: app, ["read"]).id
            let program = try session.another()
            let held = try #require(try program.ask(["hold": source.directory + "/report.txt"])["result"] as? Int)
            try source.hang()
            var request = PortalClient.request("AddFull", "(ahusas)", [[0], 2, app, ["read"]])
            request["open"] = [[held, 0]]
            try program.begin(request)
            usleep(500_000)
            let first = try #require(session.portal)
            try session.start("--replace")
            #expect(!session.said.contains("is killed"))
            try expectRevocable(id, session)
            source.goOn()
            let answer = PortalAnswer(try program.answer())
            #expect(answer.error == "Failed", "\(answer)")
            #expect(first.wait(within: 30) == 0)
            #expect(try session.fixture.list("--all").allSatisfy { $0.name == id })
        }

        @Test(
            "A user who can only read the store's directory cannot lock out services",
            .enabled(if: Identity.isRoot, "needs root, who may open it all the same"))
        func readersLock() throws {
            let session = try PortalSession.started()
            let run = session.fixture.base + "/store/run"
            let names = try FileManager.default.contentsOfDirectory(atPath: run).filter { $0.hasPrefix("portal") }
            #expect(names.count == 2, "\(names)")
            for name in names {
                var status = stat()
                #expect(stat(run + "/" + name, &status) == 0 && status.st_mode & 0o7777 == 0o200, "\(name)")
            }
            try session.stop()
            let script =
                "import fcntl, sys; file = open(sys.argv[1]); fcntl.lockf(file, fcntl.LOCK_SH); print('locked', flush=True); input()"
            let reader = try Child(["/usr/bin/python3", "-c", script, run + "/portals"])
            try reader.expect("locked")
            let output = try Command.run([Programs.grantfs, "portal"], environment: session.fixture.environment, within: 60)
            #expect(output.status == 1 && output.errors.contains("a program that is not a service has a lock on portals"), "\(output)")
            reader.send("")
            #expect(reader.wait(within: 20) == 0)
            try session.start()
        }
    }
}
