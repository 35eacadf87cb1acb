import Foundation
import Glibc
import TestSupport
import Testing

extension GrantPortalTests {
    /// A revoked permission stays revoked while services end or do not answer.
    @Suite struct Removals {
        private let app = "org.test.App"
        private let permissionStore = "org.freedesktop.impl.portal.PermissionStore"

        private func document(_ session: PortalSession, _ permissions: [String] = ["read", "write"]) throws -> (id: String, path: String) {
            let id = try session.host.addFull([try session.file()], flags: 2, app: app, permissions).id
            let path = "\(session.view(of: app))/\(id)/report.txt"
            #expect(text(path) == "old\n")
            return (id, path)
        }

        private func remove(_ id: String, _ session: PortalSession) throws {
            try session.grantfs("remove", id, "--view", "app:").orThrow()
            try session.grantfs("remove", id, "--view", "app:\(app)").orThrow()
        }

        private func expectGone(_ id: String, _ path: String, _ session: PortalSession) throws {
            try session.fixture.wait(until: "the permission store has forgotten it") { try session.permissions(of: id) == nil }
            usleep(300_000)
            #expect(text(path) == nil && text("\(session.mountpoint)/\(id)/report.txt") == nil)
            #expect(try session.fixture.list("--all").isEmpty && !session.said.contains("is taken over"))
        }

        @Test("A document removed without a service is not taken over by the next")
        func removedMeanwhile() throws {
            let session = try PortalSession.started()
            let (id, path) = try document(session)
            try session.stop(with: SIGKILL)
            try remove(id, session)
            try session.start()
            try expectGone(id, path, session)
        }

        @Test(
            "A document removed without a permission store is deleted from it later"
        )
        func removedWithoutStore() throws {
            let session = try PortalSession.started()
            let (id, path) = try document(session)
            try session.endStore()
            try session.grantfs("remove", id, "--view", "app:").orThrow()
            try session.fixture.wait(until: "it is said") { session.said.contains("document \(id) is forgotten") }
            try session.stop()
            try session.startStore()
            #expect(try session.permissions(of: id) != nil)
            try session.start()
            try expectGone(id, path, session)
            let (other, otherPath) = try document(session)
            try session.endStore()
            #expect(try session.host.call("Delete", "(s)", [other]).error != nil)
            try session.startStore()
            try expectGone(other, otherPath, session)
        }

        @Test("A Delete interrupted by a kill is completed by the next service")
        func killedDuringDelete() throws {
            let session = try PortalSession.started()
            let (id, path) = try document(session)
            let other = try session.another()
            session.signalStore(SIGSTOP)
            try other.begin(PortalClient.request("Delete", "(s)", [id]))
            try session.fixture.wait(until: "it is withdrawn") { text(path) == nil }
            // Before that the grants are withdrawn but not removed, and no application has the
            // document.
            try session.fixture.wait(until: "its grants are removed") { try session.fixture.list("--all").isEmpty }
            try session.stop(with: SIGKILL)
            try session.endStore()
            try session.startStore()
            #expect(try session.permissions(of: id) != nil)
            try session.start()
            try expectGone(id, path, session)
        }

        @Test("No document is shown until the permission store answers")
        func unanswered() throws {
            let session = try PortalSession.started()
            let (id, path) = try document(session)
            let transient = try session.host.addFull([try session.file("other")], flags: 0, app: app, ["read"]).id
            try session.stop(with: SIGKILL)
            try session.fixture.killDaemon(at: session.mountpoint)
            try session.store("SetPermission", "(sbssas)", ["documents", false, id, app, [String]()])
            try session.endStore()
            // A client that has the name and answers no request.
            let other = try session.another()
            let bus = (service: "org.freedesktop.DBus", object: "/org/freedesktop/DBus")
            _ = try other.call("RequestName", "(su)", [permissionStore, 0], service: bus.service, object: bus.object)
            try session.launch()
            try session.fixture.wait(until: "it is said") { session.said.contains("does not answer") }
            usleep(1_200_000)
            #expect(text(path) == nil && text("\(session.mountpoint)/\(id)/report.txt") == nil)
            #expect(session.said.components(separatedBy: "does not answer").count == 2)
            // It does not see that there is none for a moment.
            session.signalPortal(SIGSTOP)
            _ = try other.call("ReleaseName", "(s)", [permissionStore], service: bus.service, object: bus.object)
            try session.startStore()
            session.signalPortal(SIGCONT)
            try session.waitForAnswer()
            try session.fixture.wait(until: "it is shown") { text("\(session.mountpoint)/\(id)/report.txt") == "old\n" }
            #expect(text(path) == nil)
            #expect(try session.permissions(of: id) == [:])
            #expect(try session.host.call("Info", "(s)", [transient]).error == "InvalidArgument")
            #expect(Set(try session.fixture.list().map(\.name)) == [id])
        }

        @Test("An unreadable entry of the permission store affects no other document")
        func unreadable() throws {
            let session = try PortalSession.started()
            let (id, path) = try document(session)
            let set = try session.host.call(
                "Set", "(sbsa{sas}v)", ["documents", true, "ff", [String: [String]](), ["variant": ["h", 0]]], open: ["/dev/null"],
                flags: 0,
                service: permissionStore, object: "/org/freedesktop/impl/portal/PermissionStore")
            #expect(set.error == nil, "\(set)")
            try session.stop(with: SIGKILL)
            try session.store("SetPermission", "(sbssas)", ["documents", false, id, app, [String]()])
            try session.start()
            #expect(text(path) == nil && text("\(session.mountpoint)/\(id)/report.txt") == "old\n")
            #expect(!session.said.contains("there is no permission store"))
        }

        @Test(
            "A permission store that appears later sets the permissions")
        func appears() throws {
            let session = try PortalSession.started()
            let (id, path) = try document(session)
            let transient = try session.host.addFull([try session.file("other")], flags: 0, app: app, ["read"]).id
            try session.stop(with: SIGKILL)
            try session.store("SetPermission", "(sbssas)", ["documents", false, id, app, ["read"]])
            try session.endStore()
            try session.start()
            #expect(text(path) == "old\n")
            #expect(try session.host.call("Info", "(s)", [transient]).error == "InvalidArgument")
            #expect(try session.host.write(path, "old\n").errno == nil)
            try session.startStore()
            try session.fixture.wait(until: "it is read-only") { try session.host.write(path, "x").errno == "EROFS" }
            try session.store("Delete", "(ss)", ["documents", id])
            try session.fixture.wait(until: "it is withdrawn") { text(path) == nil }
        }

        @Test("A permission revoked during another change stays revoked")
        func concurrent() throws {
            let session = try PortalSession.started()
            let (id, path) = try document(session, ["read", "write", "delete"])
            let (user, other) = (try session.another(), try session.another())
            // The withdrawal comes first. The service notices it after it has begun the change.
            session.signalStore(SIGSTOP)
            try user.begin(
                PortalClient.request(
                    "SetPermission", "(sbssas)", ["documents", false, id, app, [String]()], service: permissionStore,
                    object: "/org/freedesktop/impl/portal/PermissionStore"))
            usleep(300_000)
            try other.begin(PortalClient.request("RevokePermissions", "(ssas)", [id, app, ["delete"]]))
            usleep(500_000)
            session.signalStore(SIGCONT)
            #expect(PortalAnswer(try user.answer()).error == nil)
            _ = try other.answer()
            try session.fixture.wait(until: "it is withdrawn") { text(path) == nil }
            usleep(300_000)
            #expect(try session.permissions(of: id) == [:] && text(path) == nil)
        }

        @Test("A replaced service leaves its mount to the next one")
        func replaced() throws {
            let session = try PortalSession.started()
            let (id, path) = try document(session)
            let daemon = try session.fixture.daemon(at: session.mountpoint)
            let first = try #require(session.portal)
            // The next service starts before it notices.
            kill(first.pid, SIGSTOP)
            try session.launch(["--replace"])
            try session.fixture.wait(until: "the next one waits for it") { session.said.contains("waits until") }
            kill(first.pid, SIGCONT)
            #expect(first.wait(within: 30) == 0)
            try session.waitForAnswer()
            #expect(text(path) == "old\n" && text("\(session.mountpoint)/\(id)/report.txt") == "old\n")
            #expect(try session.fixture.daemon(at: session.mountpoint) == daemon)
            try session.stop()
            #expect(!session.fixture.mountpoints.contains(session.mountpoint))
        }
    }
}
