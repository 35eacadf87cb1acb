import Foundation
import Glibc
import TestSupport
import Testing

extension GrantPortalTests {
    /// The permission store has no conditional change. A permission that another program revokes
    /// while the portal changes the same entry stays revoked.
    @Suite struct Overwriting {
        private let app = "org.test.App"
        private let other = "org.other.App"
        private static let all = ["read", "write", "delete"]

        private struct Place {
            let session: PortalSession
            let store: PlayedStore
            let id: String
            let path: String
        }

        /// A document that the application has, kept by a permission store that a test plays.
        private func place(_ permissions: [String] = all) throws -> Place {
            let session = try PortalSession(hasStore: false)
            let store = try PlayedStore(session)
            try session.start()
            let id = try session.host.addFull([try session.file()], flags: 2, app: app, permissions).id
            let path = "\(session.view(of: app))/\(id)/report.txt"
            #expect(text(path) == "old\n")
            return Place(session: session, store: store, id: id, path: path)
        }

        private func change(_ place: Place, _ call: Call) throws -> PortalAnswer {
            switch call {
            case .revoke: try place.session.host.call("RevokePermissions", "(ssas)", [place.id, app, ["delete"]])
            case .give: try place.session.host.call("GrantPermissions", "(ssas)", [place.id, app, ["grant-permissions"]])
            case .another: try place.session.host.call("GrantPermissions", "(ssas)", [place.id, other, ["read"]])
            }
        }

        /// What the application has in the end, in the permission store and in its view.
        private func expect(_ words: [String]?, _ place: Place, _ note: String = "") throws {
            try place.session.fixture.wait(until: "the permission store has \(words ?? ["none"]) \(note)") {
                try place.session.permissions(of: place.id)?[app] == words
            }
            try place.session.fixture.wait(until: "the view shows the same") {
                (text(place.path) != nil) == (words?.contains("read") == true)
            }
            // By then the portal has finished all of its other work.
            try place.session.fixture.wait(until: "the portal has answered everything") {
                try place.session.host.call("List", "(s)", [""]).error == nil
            }
            usleep(300_000)
            #expect(try place.session.permissions(of: place.id)?[app] == words, "\(note)")
            #expect((text(place.path) != nil) == (words?.contains("read") == true), "\(note)")
            guard words?.contains("read") == true else { return }
            #expect((try place.session.host.write(place.path, "old\n").errno == nil) == (words?.contains("write") == true), "\(note)")
        }

        enum Call: CaseIterable { case revoke, give, another }

        /// The ways to revoke all permissions of the application.
        enum Removal: CaseIterable { case set, put, delete }

        @Test(
            "A permission revoked just before the portal writes stays revoked",
            arguments: Call.allCases, Removal.allCases)
        func justBefore(call: Call, removal: Removal) throws {
            let place = try place()
            let held = try #require(FileHandle(forReadingAtPath: place.path))
            let step =
                switch removal {
                case .set: PlayedStep.set(place.id, app, [])
                case .put: PlayedStep.put(place.id, [:])
                case .delete: PlayedStep.delete(place.id)
                }
            try place.store.around([step])
            let answer = try change(place, call)
            // A caller that changes a deleted entry may get an error.
            #expect(removal == .delete ? answer.error == "NotFound" : answer.error == nil, "\(answer)")
            try expect(nil, place)
            #expect(throws: (any Error).self) { try held.read(upToCount: 1) }
            let stored = try place.session.permissions(of: place.id)
            #expect(stored == (removal == .delete ? nil : call == .another ? [other: ["read"]] : [:]))
        }

        @Test("A permission narrowed or given around a portal's write is kept")
        func narrowedAndGiven() throws {
            let place = try place()
            try place.store.around([PlayedStep.set(place.id, app, ["read", "delete"])])
            #expect(try change(place, .revoke).error == nil)
            try expect(["read"], place, "narrowed")
            try place.store.around([PlayedStep.own, PlayedStep.set(place.id, app, Self.all)])
            #expect(try change(place, .give).error == nil)
            try expect(Self.all, place, "given after it")
            try place.store.around([PlayedStep.set(place.id, app, ["read", "write", "grant-permissions", "delete"])])
            #expect(try change(place, .revoke).error == nil)
            try expect(["read", "write", "grant-permissions"], place, "given before it")
            let back = [PlayedStep.set(place.id, app, []), PlayedStep.set(place.id, app, ["read", "write", "grant-permissions"])]
            try place.store.around(back)
            #expect(try change(place, .give).error == nil)
            try expect(["read", "write", "grant-permissions"], place, "taken away and given back")
        }

        @Test("A permission revoked again while a write is corrected stays revoked")
        func again() throws {
            let place = try place()
            try place.store.around([PlayedStep.set(place.id, app, ["read", "delete"])])
            try place.store.around([PlayedStep.set(place.id, app, [])])
            #expect(try change(place, .revoke).error == nil)
            try expect(nil, place, "twice")
            #expect(try place.session.host.call("GrantPermissions", "(ssas)", [place.id, app, Self.all]).error == nil)
            for number in 0..<40 { try place.store.around([PlayedStep.set(place.id, app, number % 2 == 0 ? ["write"] : [])]) }
            _ = try change(place, .revoke)
            try expect(nil, place, "again and again")
        }

        @Test("A change for another application does not hide a revocation")
        func hiddenByAnother() throws {
            let place = try place()
            try place.store.around([PlayedStep.set(place.id, app, []), PlayedStep.own, PlayedStep.set(place.id, other, ["read"])])
            #expect(try change(place, .revoke).error == nil)
            try expect(nil, place)
            #expect(try place.session.permissions(of: place.id) == [other: ["read"]])
        }

        @Test("Forged signals revoke no permission and hide no revocation")
        func forged() throws {
            let place = try place()
            try place.store.around([PlayedStep.forged(place.id, [:])])
            #expect(try change(place, .revoke).error == nil)
            try expect(["read", "write"], place, "nothing was taken away")
            try place.store.around([PlayedStep.set(place.id, app, []), PlayedStep.forged(place.id, [app: ["read", "write"]])])
            #expect(try change(place, .give).error == nil)
            try expect(nil, place, "all of it was")
        }

        @Test("Forged signals cause no calls of the portal")
        func forgedToTheService() throws {
            let place = try place()
            usleep(300_000)
            let before = try place.store.calls
            try place.store.forge(place.id, count: 50)
            usleep(300_000)
            #expect(try place.store.calls == before)
            try place.store.put(place.id, [:])
            try expect(nil, place)
            #expect(try place.store.calls > before)
        }

        @Test(
            "A permission revoked before a failed write stays revoked",
            arguments: ["failed", "unanswered"])
        func failedWrite(kind: String) throws {
            let place = try place()
            try place.store.around([PlayedStep.set(place.id, app, [])] + (kind == "failed" ? [PlayedStep.fail] : []))
            if kind == "unanswered" { try place.store.answers("unread") }
            #expect(try change(place, .revoke).error == "Failed")
            if kind == "unanswered" { try place.store.answers("usual") }
            try expect(nil, place)
            usleep(2_500_000)
            try expect(nil, place, "after another try")
        }

        @Test(
            "A failed call of the owner gives no permission, then or later",
            arguments: ["failed", "removed", "unanswered"])
        func failedGiving(kind: String) throws {
            let place = try place(["read"])
            if kind == "unanswered" { try place.store.answers("unread") } else { try place.store.around([PlayedStep.fail]) }
            let answer = try place.session.host.call("GrantPermissions", "(ssas)", [place.id, app, ["write"]])
            #expect(answer.error == "Failed", "\(answer)")
            #expect(try place.session.host.write(place.path, "x").errno != nil)
            if kind == "unanswered" { try place.store.answers("usual") }
            if kind == "removed" { try place.store.put(place.id, [:]) }
            try expect(kind == "removed" ? nil : ["read"], place)
            usleep(2_500_000)
            try expect(kind == "removed" ? nil : ["read"], place, "after another try")
        }

        @Test(
            "A permission given and revoked around a portal's write is not given again",
            arguments: ["at once", "while it is given back", "given back"])
        func takenBack(kind: String) throws {
            let place = try place()
            let given = PlayedStep.set(place.id, app, ["read", "write", "grant-permissions", "delete"])
            let taken = PlayedStep.set(place.id, app, ["read", "write"])
            switch kind {
            case "at once": try place.store.around([given, PlayedStep.own, taken])
            case "given back": try place.store.around([given])
            default:
                try place.store.around([given])
                try place.store.around([taken])
            }
            #expect(try change(place, .revoke).error == nil)
            try expect(["read", "write"] + (kind == "given back" ? ["grant-permissions"] : []), place)
        }

        @Test(
            "A change of a document with a large entry is followed",
            arguments: ["a long value", "many values"])
        func largeEntry(kind: String) throws {
            let place = try place()
            let more = kind == "many values" ? [String](repeating: "x", count: 5000) : [String(repeating: "x", count: 300_000)]
            try place.store.put(place.id, [other: ["read"] + more])
            try place.session.fixture.wait(until: "it is withdrawn") { text(place.path) == nil }
            let path = "\(place.session.view(of: other))/\(place.id)/report.txt"
            try place.session.fixture.wait(until: "the other application has it") { text(path) == "old\n" }
        }

        @Test("A change is followed after the permission store failed to answer once")
        func askedAgain() throws {
            let place = try place()
            try place.store.answers("error")
            try place.store.put(place.id, [:])
            try place.session.fixture.wait(until: "it is said") { place.session.said.contains("does not answer") }
            try place.store.answers("usual")
            try place.session.fixture.wait(until: "it is withdrawn") { text(place.path) == nil }
        }

        @Test(
            "The bus keeps no announcements of other tables for the service"
        )
        func announcements() throws {
            let place = try place()
            try place.store.announce("devices", "no document", count: 20, bytes: 1_000_000)
            #expect(try #require(try place.session.bytes("PeakOutgoingBytes")) < 1_000_000)
            try place.store.announce("documents", "no document", count: 20, bytes: 1_000_000)
            #expect(try #require(try place.session.bytes("PeakOutgoingBytes")) > 1_000_000)
            try place.session.fixture.wait(until: "the service has read it") { try place.session.bytes("OutgoingBytes") == 0 }
        }

        @Test("A permission that a failed write did not revoke is revoked by the next one")
        func failedRevocation() throws {
            let place = try place()
            try place.store.around([PlayedStep.fail])
            #expect(try change(place, .revoke).error == "Failed")
            try expect(["read", "write"], place)
        }

        @Test(
            "A permission store with a late or missing signal is asked again",
            arguments: ["late", "mute"])
        func signals(kind: String) throws {
            let place = try place()
            try place.store.answers(kind)
            if kind == "late" { try place.store.around([PlayedStep.set(place.id, app, [])]) }
            #expect(try change(place, .revoke).error == nil)
            try expect(kind == "late" ? nil : ["read", "write"], place)
        }

        @Test("A permission revoked while the portal starts stays revoked")
        func atTheStart() throws {
            let place = try place()
            try place.session.stop(with: SIGKILL)
            try place.session.grantfs("set", place.id, "--view", "app:\(app)", "--access", "read-only").orThrow()
            try place.store.around([PlayedStep.set(place.id, app, [])])
            try place.session.start()
            try expect(nil, place)
        }

        /// As a user and programs do it at the same time, with the permission store of the desktop.
        @Test(
            "A permission revoked during concurrent changes stays revoked",
            arguments: Race.allCases)
        func race(kind: Race) throws {
            let session = try PortalSession.started()
            let (user, program, second) = (try session.another(), try session.another(), try session.another())
            var returned = 0
            for round in 0..<25 {
                let id = try session.host.addFull([try session.file("r\(round)")], flags: 2, app: app, Self.all).id
                let path = "\(session.view(of: app))/\(id)/r\(round)"
                let calls = (0..<24).map { number -> [String: Any] in
                    PortalClient.request(
                        number % 2 == 0 ? "RevokePermissions" : "GrantPermissions", "(ssas)",
                        kind == .another && number % 4 > 1 ? [id, other, ["read"]] : [id, app, ["delete"]])
                }
                try program.begin(["burst": calls])
                try second.begin(["burst": calls])
                usleep(UInt32.random(in: 0...60_000))
                let removal: (String, String, [Any]) =
                    switch (kind, round % 3) {
                    case (.whole, 0), (.another, 0):
                        ("Set", "(sbsa{sas}v)", ["documents", false, id, [String: [String]](), try data(id, session)])
                    case (.whole, 1): ("Delete", "(ss)", ["documents", id])
                    case (_, 1): ("DeletePermission", "(sss)", ["documents", id, app])
                    default: ("SetPermission", "(sbssas)", ["documents", false, id, app, [String]()])
                    }
                let taken = try user.call(
                    removal.0, removal.1, removal.2, service: PortalSession.storeName, object: PortalSession.storeObject)
                #expect(taken.error == nil, "\(taken)")
                _ = try program.answers()
                _ = try second.answers()
                // `delete` alone may have been given after the removal.
                func isGone() throws -> Bool {
                    let words = Set(try session.permissions(of: id)?[app] ?? [])
                    return words.isDisjoint(with: ["read", "write"]) && text(path) == nil
                }
                for _ in 0..<60 where try !isGone() { usleep(50_000) }
                if try !isGone() { returned += 1 }
            }
            #expect(returned == 0, "\(returned) of 25 removals were overwritten")
        }

        enum Race: CaseIterable { case own, another, whole }

        /// What the permission store keeps of a document beside permissions, as a client gives it.
        private func data(_ id: String, _ session: PortalSession) throws -> [String: Any] {
            let file = try #require(try session.host.call("Info", "(s)", [id]).texts.first)
            var status = stat()
            stat((file as NSString).deletingLastPathComponent, &status)
            let path = Array(file.utf8).map { Int($0) } + [0]
            return ["variant": ["(ayttu)", [path, UInt64(status.st_dev), UInt64(status.st_ino), 0] as [Any]] as [Any]]
        }
    }
}
