import Foundation
import Glibc
import TestSupport
import Testing

extension GrantPortalTests {
    @Suite struct Transfers {
        private let interface = "org.freedesktop.portal.FileTransfer"

        private func call(
            _ client: PortalClient, _ member: String, _ signature: String, _ arguments: [Any], open: [String] = [],
            flags: Int = PortalClient.path
        ) throws -> PortalAnswer {
            try client.call(
                member, signature, arguments, open: open, flags: flags, interface: interface, service: "org.freedesktop.portal.Documents")
        }

        private func start(_ client: PortalClient, _ options: [String: Any] = [:]) throws -> String {
            try call(client, "StartTransfer", "(a{sv})", [options.mapValues { ["variant": ["b", $0]] }]).id
        }

        @Test("A transfer is taken once with its key and reports its end")
        func taken() throws {
            let session = try PortalSession.started()
            let files = [try session.file("one"), try session.file("two")]
            let (giver, taker) = (try session.host, try session.another())
            let key = try start(giver)
            #expect(try call(giver, "AddFiles", "(saha{sv})", [key, [0], [:]], open: [files[0]]).error == nil)
            #expect(try call(giver, "AddFiles", "(saha{sv})", [key, [0], [:]], open: [files[1]]).error == nil)
            // The taken file is the offered one, at its present place.
            try FileManager.default.moveItem(atPath: files[1], toPath: files[1] + ".moved")
            #expect(try call(taker, "RetrieveFiles", "(sa{sv})", [key, [:]]).values.first as? [String] == [files[0], files[1] + ".moved"])
            #expect(try call(taker, "RetrieveFiles", "(sa{sv})", [key, [:]]).error == "org.freedesktop.DBus.Error.AccessDenied")
            let signals = try giver.ask(["signals": 0.5])["signals"] as? [[Any]]
            #expect(signals?.count == 1 && signals?.first?.first as? String == "TransferClosed")
            #expect((signals?.first?.last as? [String]) == [key])
        }

        @Test("A transfer without automatic stop lasts until it is stopped")
        func stopped() throws {
            let session = try PortalSession.started()
            let file = try session.file()
            let (giver, taker) = (try session.host, try session.another())
            let key = try start(giver, ["autostop": false])
            #expect(try call(giver, "AddFiles", "(saha{sv})", [key, [0], [:]], open: [file]).error == nil)
            for _ in 0..<2 { #expect(try call(taker, "RetrieveFiles", "(sa{sv})", [key, [:]]).values.first as? [String] == [file]) }
            #expect(try call(giver, "StopTransfer", "(s)", [key]).error == nil)
            #expect(try call(giver, "StopTransfer", "(s)", [key]).error == "org.freedesktop.DBus.Error.AccessDenied")
            let other = try start(taker, ["autostop": false])
            taker.end()
            try session.fixture.wait(until: "it has ended") {
                try call(giver, "RetrieveFiles", "(sa{sv})", [other, [:]]).error == "org.freedesktop.DBus.Error.AccessDenied"
            }
        }

        @Test("A transfer refuses foreign callers, unproven files and missing rights")
        func refused() throws {
            let session = try PortalSession.started()
            let file = try session.file()
            let (giver, taker) = (try session.host, try session.another())
            let key = try start(giver, ["writable": true])
            #expect(
                try call(taker, "AddFiles", "(saha{sv})", [key, [0], [:]], open: [file]).error == "org.freedesktop.DBus.Error.AccessDenied")
            #expect(
                try call(giver, "AddFiles", "(saha{sv})", ["1", [0], [:]], open: [file]).error == "org.freedesktop.DBus.Error.AccessDenied")
            #expect(try call(giver, "AddFiles", "(saha{sv})", [key, [0], [:]], open: [file], flags: Int(O_RDONLY)).error == "NotAllowed")
            #expect(try call(giver, "AddFiles", "(saha{sv})", [key, [0], [:]], open: ["/dev/null"]).error == "NotAllowed")
            #expect(try call(giver, "RetrieveFiles", "(sa{sv})", [key, [:]]).values.first as? [String] == [])
        }

        @Test(
            "An application takes a transfer as documents that end with the session",
            .enabled(if: Machine.offers("bwrap"), Comment(rawValue: Machine.needs("bwrap"))), arguments: [false, true])
        func forApplications(isWritable: Bool) throws {
            let session = try PortalSession.started()
            let file = try session.file()
            let app = "org.test.App"
            let program = try session.sandboxed(app)
            let key = try start(session.host, ["writable": isWritable])
            #expect(try call(session.host, "AddFiles", "(saha{sv})", [key, [0], [:]], open: [file]).error == nil)
            let answer = try call(program, "RetrieveFiles", "(sa{sv})", [key, [:]])
            let path = try #require((answer.values.first as? [String])?.first, "\(answer)")
            let parts = path.split(separator: "/")
            #expect(path.hasPrefix(session.mountpoint + "/") && parts.last == "report.txt")
            let id = String(parts[parts.count - 2])
            #expect(try session.permissions(of: id) == nil)
            let view = session.view(of: app)
            #expect(text("\(view)/\(id)/report.txt") == "old\n")
            #expect(try session.host.write("\(view)/\(id)/report.txt", "new\n").errno == (isWritable ? nil : "EROFS"))
            try session.stop()
            #expect(try session.fixture.list("--all").isEmpty)
        }
    }
}
