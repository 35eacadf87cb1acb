import Foundation
import Glibc
import TestSupport
import Testing

extension GrantPortalTests {
    @Suite struct Permissions {
        private let app = "org.test.App"

        private func document(_ session: PortalSession, _ permissions: [String]) throws -> (id: String, view: String) {
            let id = try session.host.addFull([try session.file()], app: app, permissions).id
            return (id, session.view(of: app))
        }

        @Test(
            "A read permission is a read-only grant, and writing changes live"
        )
        func narrowed() throws {
            let session = try PortalSession.started()
            let (id, view) = try document(session, ["read"])
            let path = "\(view)/\(id)/report.txt"
            #expect(text(path) == "old\n")
            #expect(try session.host.write(path, "x").errno == "EROFS")
            #expect(try session.host.call("GrantPermissions", "(ssas)", [id, app, ["write"]]).error == nil)
            #expect(try session.host.write(path, "new\n").errno == nil)
            let held = try #require(FileHandle(forUpdatingAtPath: path))
            #expect(try session.host.call("RevokePermissions", "(ssas)", [id, app, ["write"]]).error == nil)
            #expect(throws: (any Error).self) { try held.write(contentsOf: Data("x".utf8)) }
            #expect(text(path) == "new\n")
            #expect(try session.permissions(of: id) == [app: ["read"]])
        }

        @Test("A revoked permission ends open descriptors and refuses the document")
        func revoked() throws {
            let session = try PortalSession.started()
            let (id, view) = try document(session, ["read"])
            let held = try #require(FileHandle(forReadingAtPath: "\(view)/\(id)/report.txt"))
            #expect(try session.host.call("RevokePermissions", "(ssas)", [id, app, ["read"]]).error == nil)
            #expect(throws: (any Error).self) { try held.read(upToCount: 1) }
            #expect(try session.host.read("\(view)/\(id)/report.txt").errno == "EACCES")
            #expect(text("\(session.mountpoint)/\(id)/report.txt") == "old\n")
            #expect(try session.permissions(of: id) == [:])
            // Given again, it is another activation.
            #expect(try session.host.call("GrantPermissions", "(ssas)", [id, app, ["read"]]).error == nil)
            #expect(text("\(view)/\(id)/report.txt") == "old\n")
            #expect(throws: (any Error).self) { try held.read(upToCount: 1) }
        }

        @Test(
            "A permission revoked in the permission store is withdrawn in the view",
            arguments: ["SetPermission", "Delete"])
        func followed(member: String) throws {
            let session = try PortalSession.started()
            let (id, view) = try document(session, ["read", "write"])
            let held = try #require(FileHandle(forReadingAtPath: "\(view)/\(id)/report.txt"))
            if member == "Delete" {
                try session.store("Delete", "(ss)", ["documents", id])
            } else {
                try session.store("SetPermission", "(sbssas)", ["documents", false, id, app, [String]()])
            }
            try session.fixture.wait(until: "the view refuses it") { text("\(view)/\(id)/report.txt") == nil }
            // The name goes first.
            try session.fixture.wait(until: "the open descriptor is refused") {
                do {
                    _ = try held.read(upToCount: 1)
                    return false
                } catch {
                    return true
                }
            }
            try session.fixture.wait(until: "the portal says so") {
                let document = try session.host.call("Info", "(s)", [id])
                return member == "Delete"
                    ? document.error == "InvalidArgument" : document.values.last as? [String: [String]] == [:]
            }
        }

        @Test("A permission narrowed or given in the permission store shows in the view")
        func followedNarrowing() throws {
            let session = try PortalSession.started()
            let (id, view) = try document(session, ["read", "write"])
            try session.store("SetPermission", "(sbssas)", ["documents", false, id, app, ["read"]])
            try session.fixture.wait(until: "it is read-only") { try session.host.write("\(view)/\(id)/report.txt", "x").errno == "EROFS" }
            try session.store("SetPermission", "(sbssas)", ["documents", false, id, "org.other.App", ["read"]])
            let other = session.view(of: "org.other.App")
            try session.fixture.wait(until: "the other sees it") { text("\(other)/\(id)/report.txt") != nil }
        }

        @Test("`revoke`, `set` and `restore` change the permission store")
        func byCommand() throws {
            let session = try PortalSession.started()
            let (id, _) = try document(session, ["read", "write"])
            let view = "app:\(app)"
            try session.grantfs("set", id, "--view", view, "--access", "read-only").orThrow()
            try session.fixture.wait(until: "the permission to write is gone") { try session.permissions(of: id) == [app: ["read"]] }
            try session.grantfs("revoke", id, "--view", view).orThrow()
            try session.fixture.wait(until: "all of it is gone") { try session.permissions(of: id) == [:] }
            try session.grantfs("restore", id, "--view", view).orThrow()
            try session.fixture.wait(until: "it is back") { try session.permissions(of: id) == [app: ["read"]] }
            try session.grantfs("remove", id, "--view", "app:").orThrow()
            try session.fixture.wait(until: "the document is forgotten") { try session.permissions(of: id) == nil }
            #expect(try session.fixture.list("--all").isEmpty)
        }

        @Test(
            "Flatpak's commands show and remove documents",
            .enabled(if: Command.exists("flatpak"), "flatpak is not installed"))
        func flatpak() throws {
            let session = try PortalSession.started()
            let (id, view) = try document(session, ["read"])
            func flatpak(_ words: String...) throws -> Output {
                try Command.run(["flatpak"] + words, environment: session.fixture.environment)
            }
            #expect(try flatpak("document-list", "--columns=id").trimmed.contains(id))
            let file = session.fixture.base + "/source/papers/report.txt"
            let info = try flatpak("document-info", file).orThrow().text
            #expect(info.contains("id: \(id)") && info.contains("origin: \(file)") && info.contains(app), "\(info)")
            #expect(try flatpak("permission-show", app).text.contains(id))
            try flatpak("permission-remove", "documents", id, app).orThrow()
            try session.fixture.wait(until: "the view refuses it") { text("\(view)/\(id)/report.txt") == nil }
            let exported = try flatpak("document-export", "--app=\(app)", "-r", file).orThrow().trimmed
            #expect(exported.contains(session.mountpoint), "\(exported)")
            #expect(text("\(view)/\(id)/report.txt") == "old\n")
            try flatpak("permission-reset", app).orThrow()
            try session.fixture.wait(until: "it is refused again") { text("\(view)/\(id)/report.txt") == nil }
            try flatpak("document-unexport", file).orThrow()
            #expect(try session.permissions(of: id) == nil)
        }

        @Test("Documents of the earlier portal are taken over unless replaced")
        func takenOver() throws {
            let session = try PortalSession()
            let file = try session.file()
            var status = stat()
            stat(URL(fileURLWithPath: file).deletingLastPathComponent().path, &status)
            for (id, inode) in [("1a2b3c4d", UInt64(status.st_ino)), ("c0ffee", UInt64(status.st_ino)), ("0badf00d", 1)] {
                let data: [String: Any] = [
                    "variant": ["(ayttu)", [Array(file.utf8).map { Int($0) } + [0], UInt64(status.st_dev), inode, 0]]
                ]
                try session.store("Set", "(sbsa{sas}v)", ["documents", true, id, [app: ["read"]], data])
            }
            try session.start()
            let view = session.view(of: app)
            for id in ["1a2b3c4d", "c0ffee"] {
                try session.fixture.wait(until: "it is shown") { text("\(view)/\(id)/report.txt") == "old\n" }
                #expect(try session.host.write("\(view)/\(id)/report.txt", "x").errno == "EROFS")
            }
            #expect(text("\(view)/0badf00d/report.txt") == nil)
            try session.fixture.wait(until: "it is said") {
                session.said.contains("1a2b3c4d is taken over from the earlier portal") && session.said.contains("0badf00d, ")
            }
        }

        @Test("Without a permission store documents last as long as the session")
        func withoutStore() throws {
            let session = try PortalSession.started(hasStore: false)
            let (id, view) = try document(session, ["read"])
            #expect(text("\(view)/\(id)/report.txt") == "old\n")
            #expect(try session.host.call("Info", "(s)", [id]).values.last as? [String: [String]] == [app: ["read"]])
            #expect(try session.host.call("RevokePermissions", "(ssas)", [id, app, ["read"]]).error == nil)
            #expect(try session.host.read("\(view)/\(id)/report.txt").errno == "EACCES")
            try session.stop()
            #expect(session.said.components(separatedBy: "there is no permission store").count == 2)
            #expect(try session.fixture.list("--all").isEmpty)
        }
    }
}
