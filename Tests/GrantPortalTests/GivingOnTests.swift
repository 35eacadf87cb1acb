import Foundation
import Glibc
import TestSupport
import Testing

extension GrantPortalTests {
    /// An application never gives on a document that it has just lost.
    @Suite(.enabled(if: Machine.offers("bwrap"), Comment(rawValue: Machine.needs("bwrap"))))
    struct GivingOn {
        private let app = "org.test.App"
        private let other = "org.other.App"
        private let transfer = "org.freedesktop.portal.FileTransfer"

        private func listed(_ session: PortalSession, _ app: String? = nil) throws -> [GrantDocument] {
            try session.fixture.list().filter { $0.view == "app:\(app ?? other)" }
        }

        /// The two ways to take it from the application.
        enum Way: String, CaseIterable, CustomTestStringConvertible {
            case revoke, permissionStore
            var testDescription: String { rawValue }
        }

        private func take(_ id: String, _ way: Way, _ session: PortalSession) throws {
            switch way {
            case .revoke: try session.grantfs("revoke", id, "--view", "app:\(app)").orThrow()
            case .permissionStore: try session.store("SetPermission", "(sbssas)", ["documents", false, id, app, [String]()])
            }
        }

        @Test("A document withdrawn a moment ago cannot be given on", arguments: Way.allCases)
        func atOnce(way: Way) throws {
            let session = try PortalSession.started()
            let program = try session.sandboxed(app)
            // The service looks four times a second what others have withdrawn.
            for number in 0..<6 {
                let file = try session.file("report-\(number)")
                let id = try session.host.addFull([file], app: app, ["read", "grant-permissions"]).id
                let held = try #require(try program.ask(["hold": "/run/flatpak/doc/\(id)/report-\(number)"])["result"] as? Int)
                try take(id, way, session)
                let answer = try program.call("GrantPermissions", "(ssas)", [id, other, ["read"]])
                #expect(answer.error == "NotAllowed", "\(number): \(answer)")
                var added = PortalClient.request("AddFull", "(ahusas)", [[0], 3, other, ["read"]])
                added["open"] = [[held, 0]]
                #expect(PortalAnswer(try program.ask(added)).error != nil)
            }
            #expect(try listed(session).isEmpty && listed(session, app).isEmpty)
        }

        @Test("A grant restored a moment ago is withdrawn by RevokePermissions")
        func takenAtOnce() throws {
            let session = try PortalSession.started()
            for number in 0..<3 {
                let id = try session.host.addFull([try session.file("report-\(number)")], flags: 2, app: app, ["read"]).id
                try take(id, .revoke, session)
                try session.fixture.wait(until: "the permission store knows") { try session.permissions(of: id)?[app] == nil }
                // The service has seen all of it, and is between two looks.
                usleep(600_000)
                try session.grantfs("restore", id, "--view", "app:\(app)").orThrow()
                #expect(try session.host.call("RevokePermissions", "(ssas)", [id, app, ["read"]]).error == nil)
                usleep(700_000)
                #expect(try session.permissions(of: id)?[app] == nil && listed(session, app).isEmpty, "\(number)")
                #expect(text("\(session.view(of: app))/\(id)/report-\(number)") == nil, "\(number)")
            }
        }

        @Test("A document lost while it is given on reaches no other application")
        func failedGiving() throws {
            let session = try PortalSession(hasStore: false)
            let store = try PlayedStore(session)
            try session.start()
            let program = try session.sandboxed(app)
            let id = try session.host.addFull([try session.file()], flags: 2, app: app, ["read", "grant-permissions"]).id
            try store.around([PlayedStep.set(id, app, []), PlayedStep.fail])
            #expect(try program.call("GrantPermissions", "(ssas)", [id, other, ["read"]]).error != nil)
            // Until the service has repeated the failed call.
            usleep(3_000_000)
            #expect(try session.permissions(of: id)?[other] == nil && listed(session).isEmpty)
            #expect(text("\(session.view(of: other))/\(id)/report.txt") == nil)
        }

        @Test(
            "A withdrawal reaches every application that got the document during it",
            arguments: Way.allCases)
        func whileItIsGiven(way: Way) throws {
            let session = try PortalSession.started()
            let program = try session.sandboxed(app)
            let id = try session.host.addFull([try session.file()], app: app, ["read", "grant-permissions"]).id
            let others = (0..<40).map { "org.other.App\($0)" }
            try program.begin(
                ["burst": others.map { PortalClient.request("GrantPermissions", "(ssas)", [id, $0, ["read"]]) }])
            usleep(60_000)
            try take(id, way, session)
            let answers = try program.answers()
            #expect(answers.allSatisfy { $0.error == nil || $0.error == "NotAllowed" })
            try session.fixture.wait(until: "it is withdrawn") { try listed(session, app).isEmpty }
            // A refused call gave the document to no application.
            let has = Set(try session.fixture.list().map(\.view))
            for (name, answer) in zip(others, answers) {
                #expect(has.contains("app:\(name)") == (answer.error == nil), "\(name): \(answer)")
            }
            guard way == .revoke else { return }
            // And nothing that was given after the withdrawal has stayed.
            let log = try session.fixture.grantfs("log", "--json").orThrow().text
            let events = try #require(JSONSerialization.jsonObject(with: Data(log.utf8)) as? [[String: Any]])
            let end = try #require(events.lastIndex { $0["event"] as? String == "revoked" && $0["view"] as? String == "app:\(app)" })
            for event in events[end...] where event["event"] as? String == "granted" {
                #expect(!has.contains(event["view"] as? String ?? ""), "\(event)")
            }
        }

        @Test(
            "A transfer of a document that its sender has lost is refused",
            arguments: Way.allCases)
        func heldOut(way: Way) throws {
            let session = try PortalSession.started()
            let id = try session.host.addFull([try session.file()], app: app, ["read", "grant-permissions"]).id
            try expectNotTaken(id, "report.txt", way, session)
        }

        @Test("A transfer of a file in a directory that its sender has lost is refused", arguments: Way.allCases)
        func fileOfADirectory(way: Way) throws {
            let session = try PortalSession.started()
            let papers = (try session.file() as NSString).deletingLastPathComponent
            let id = try session.host.addFull([papers], flags: 3 | 8, app: app, ["read", "grant-permissions"]).id
            try expectNotTaken(id, "papers/report.txt", way, session)
        }

        /// Has the application hold out a file of its document, takes the document from it, and has another one ask for the file.
        private func expectNotTaken(_ id: String, _ name: String, _ way: Way, _ session: PortalSession) throws {
            let (program, taker) = (try session.sandboxed(app), try session.sandboxed(other))
            let key = try program.call("StartTransfer", "(a{sv})", [[String: Any]()], interface: transfer, service: PortalClient.documents)
                .id
            let added = try program.call(
                "AddFiles", "(saha{sv})", [key, [0], [String: Any]()], open: ["/run/flatpak/doc/\(id)/\(name)"], interface: transfer,
                service: PortalClient.documents)
            #expect(added.error == nil, "\(added)")
            try take(id, way, session)
            let answer = try taker.call(
                "RetrieveFiles", "(sa{sv})", [key, [String: Any]()], interface: transfer, service: PortalClient.documents)
            #expect(answer.error == "NotAllowed", "\(answer)")
            #expect(try listed(session).isEmpty)
        }

        @Test("An application that lost a document cannot revoke or delete it", arguments: Way.allCases)
        func takesNothing(way: Way) throws {
            let session = try PortalSession.started()
            let program = try session.sandboxed(app)
            for number in 0..<3 {
                let file = try session.file("t\(number)")
                let id = try session.host.addFull([file], app: app, ["read", "grant-permissions", "delete"]).id
                #expect(try session.host.call("GrantPermissions", "(ssas)", [id, other, ["read"]]).error == nil)
                try take(id, way, session)
                #expect(try program.call("RevokePermissions", "(ssas)", [id, other, ["read"]]).error == "NotAllowed")
                #expect(try program.call("Delete", "(s)", [id]).error == "NotAllowed")
            }
            #expect(try listed(session).count == 3)
        }

        @Test("A document narrowed a moment ago is not given on for writing")
        func narrowed() throws {
            let session = try PortalSession.started()
            let program = try session.sandboxed(app)
            for number in 0..<4 {
                let id = try session.host.addFull([try session.file("n\(number)")], app: app, ["read", "write", "grant-permissions"]).id
                try session.grantfs("set", id, "--view", "app:\(app)", "--access", "read-only").orThrow()
                #expect(try program.call("GrantPermissions", "(ssas)", [id, other, ["read", "write"]]).error == "NotAllowed")
                #expect(try session.host.call("GrantPermissions", "(ssas)", [id, app, ["delete"]]).error == nil)
                #expect(try session.permissions(of: id)?[app] == ["read", "grant-permissions", "delete"])
            }
            #expect(try listed(session).isEmpty && listed(session, app).allSatisfy { $0.access == "read-only" })
        }
    }
}
