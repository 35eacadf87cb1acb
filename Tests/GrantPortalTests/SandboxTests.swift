import Foundation
import Glibc
import TestSupport
import Testing

extension GrantPortalTests {
    /// Programs in sandboxes, told by /.flatpak-info of their root directory.
    @Suite(.enabled(if: Machine.offers("bwrap"), Comment(rawValue: Machine.needs("bwrap"))))
    struct InASandbox {
        private let app = "org.test.App"

        @Test("An application proves a file by a descriptor and gets its permissions")
        func adds() throws {
            let session = try PortalSession.started()
            let file = try session.file()
            let papers = URL(fileURLWithPath: file).deletingLastPathComponent().path
            let program = try session.sandboxed(app, binding: [(papers, "/elsewhere/of/mine")])
            let answer = try program.add("/elsewhere/of/mine/report.txt")
            #expect(answer.error == nil, "\(answer)")
            #expect(try session.host.call("Info", "(s)", [answer.id]).texts == [file])
            #expect(try session.permissions(of: answer.id) == [app: ["read", "write", "grant-permissions"]])
            let own = try program.add("/elsewhere/of/mine/report.txt", reuse: false).id
            #expect(try session.permissions(of: own) == [app: ["read", "write", "grant-permissions", "delete"]])
            let view = session.view(of: app)
            #expect(text("\(view)/\(answer.id)/report.txt") == "old\n")
            // It may give its document to others and revoke it. It may delete a document that only
            // it has.
            #expect(try program.call("GrantPermissions", "(ssas)", [answer.id, "org.other.App", ["read"]]).error == nil)
            #expect(try program.call("RevokePermissions", "(ssas)", [answer.id, "org.other.App", ["read"]]).error == nil)
            #expect(try program.call("GrantPermissions", "(ssas)", [answer.id, "org.other.App", ["delete"]]).error == "NotAllowed")
            #expect(try program.call("Delete", "(s)", [answer.id]).error == "NotAllowed")
            #expect(try program.call("Delete", "(s)", [own]).error == nil)
            #expect(try program.call("GetHostPaths", "(as)", [[answer.id]]).dictionary as? [String: String] == [answer.id: file])
        }

        @Test("A file made in a sandbox at the path of a host's file proves nothing")
        func madeUp() throws {
            let session = try PortalSession.started()
            let file = try session.file()
            let papers = URL(fileURLWithPath: file).deletingLastPathComponent().path
            let other = try session.fixture.directory("outside/other")
            try "mine\n".write(toFile: other + "/report.txt", atomically: false, encoding: .utf8)
            // Its own file is seen where the host's is: what it proves is its own.
            let program = try session.sandboxed(app, binding: [(other, papers)])
            let id = try program.add(papers + "/report.txt").id
            #expect(try session.host.call("Info", "(s)", [id]).texts == [other + "/report.txt"])
            // A file in a filesystem of the sandbox alone is none of the host's.
            #expect(try program.write("/dev/shm/report.txt", "x").errno == nil)
            #expect(try program.add("/dev/shm/report.txt").error == "InvalidArgument")
        }

        @Test("An application cannot give write access to a read-only file")
        func readOnly() throws {
            let session = try PortalSession.started()
            let program = try session.sandboxed(app)
            let id = try program.add("/usr/bin/env").id
            #expect(try session.permissions(of: id) == [app: ["read", "grant-permissions"]])
            let answer = try program.addFull(["/usr/bin/env"], flags: 3, app: "org.other.App", ["read", "write"])
            #expect(answer.error == "NotAllowed", "\(answer)")
        }

        @Test("An application cannot query foreign documents or host-only calls")
        func others() throws {
            let session = try PortalSession.started()
            let file = try session.file()
            let id = try session.host.addFull([file], app: "org.other.App", ["read", "write", "grant-permissions", "delete"]).id
            let papers = URL(fileURLWithPath: file).deletingLastPathComponent().path
            let program = try session.sandboxed(app, binding: [(papers, papers)])
            for answer in [
                try program.call("Info", "(s)", [id]), try program.call("List", "(s)", [""]),
                try program.call("Lookup", "(ay)", [["path": file]]), try program.call("Delete", "(s)", [id]),
                try program.call("GrantPermissions", "(ssas)", [id, app, ["read"]]),
                try program.call("RevokePermissions", "(ssas)", [id, "org.other.App", ["read"]]),
                try program.call("AddNamed", "(haybb)", [0, ["path": "new"], true, false], open: [papers]),
                try program.call("AddNamedFull", "(hayusas)", [0, ["path": "new"], 1, app, ["read"]], open: [papers]),
            ] { #expect(answer.error == "NotAllowed", "\(answer)") }
            #expect(try program.call("GetHostPaths", "(as)", [[id]]).dictionary.isEmpty)
            #expect(try program.call("GetMountPoint").texts == [session.mountpoint])
            #expect(try session.permissions(of: id)?.count == 1 && text(papers + "/new") == nil)
            // What it was given it may give up.
            #expect(try session.host.call("GrantPermissions", "(ssas)", [id, app, ["read"]]).error == nil)
            #expect(try program.call("RevokePermissions", "(ssas)", [id, app, ["read"]]).error == nil)
            #expect(try session.permissions(of: id)?.keys.contains(app) == false)
        }

        @Test("An application sees only its own documents")
        func ownDocuments() throws {
            let session = try PortalSession.started()
            let file = try session.file()
            let program = try session.sandboxed(app)
            let id = try session.host.addFull([file], app: app, ["read"]).id
            let other = try session.host.addFull([try session.file("other")], app: "org.other.App", ["read", "write"]).id
            let path = "/run/flatpak/doc/\(id)/report.txt"
            #expect(try program.list("/run/flatpak/doc").texts == [id])
            #expect(try program.read(path).texts == ["old\n"])
            #expect(try program.read("/run/flatpak/doc/\(other)/other").errno == "ENOENT")
            #expect(try program.write(path, "x").errno == "EROFS")
            #expect(try program.add(path).id == id)
            #expect(try program.add(path, reuse: false).error == "InvalidArgument")
            // It may only read, so it cannot share the document.
            #expect(try program.addFull([path], app: "org.other.App", ["read"]).error == "NotAllowed")
            #expect(try program.addFull([path], app: app, ["read", "write"]).error == "NotAllowed")
            #expect(try session.host.call("GrantPermissions", "(ssas)", [id, app, ["write", "grant-permissions"]]).error == nil)
            #expect(try program.write(path, "new\n").errno == nil && text(file) == "new\n")
            #expect(try program.addFull([path], app: "org.other.App", ["read"]).id == id)
            #expect(try session.host.read("\(session.view(of: "org.other.App"))/\(id)/report.txt").texts == ["new\n"])
            // A file that it makes beside the document does not become one.
            #expect(try program.write("/run/flatpak/doc/\(id)/beside", "x").errno == nil)
            #expect(try program.add("/run/flatpak/doc/\(id)/beside").error == "InvalidArgument")
        }

        @Test("A file in a granted directory becomes a document with the same rights")
        func inADirectory() throws {
            let session = try PortalSession.started()
            let file = try session.file()
            let papers = URL(fileURLWithPath: file).deletingLastPathComponent().path
            let program = try session.sandboxed(app)
            let id = try session.host.addFull([papers], flags: 3 | 8, app: app, ["read", "grant-permissions"]).id
            #expect(try program.read("/run/flatpak/doc/\(id)/papers/report.txt").texts == ["old\n"])
            let inner = try program.add("/run/flatpak/doc/\(id)/papers/report.txt")
            #expect(inner.error == nil && inner.id != id, "\(inner)")
            #expect(try session.host.call("Info", "(s)", [inner.id]).texts == [file])
            #expect(try session.permissions(of: inner.id) == [app: ["read", "grant-permissions"]])
            #expect(try program.addFull(["/run/flatpak/doc/\(id)/papers"], flags: 3 | 8).id == id)
        }

        @Test("An application loses a document live with its permission")
        func loses() throws {
            let session = try PortalSession.started()
            let id = try session.host.addFull([try session.file()], app: app, ["read"]).id
            let holding = """
                import os, sys
                held = os.open(sys.argv[1], os.O_RDONLY)
                print('held', flush=True)
                sys.stdin.readline()
                try:
                    print(os.read(held, 4), flush=True)
                except OSError as error:
                    print(error.errno, flush=True)
                """
            let program = try session.inSandbox(app, ["/usr/bin/python3", "-c", holding, "/run/flatpak/doc/\(id)/report.txt"])
            try program.expect("held")
            try session.grantfs("revoke", id, "--view", "app:\(app)").orThrow()
            program.send("go")
            try program.expect("\(EACCES)")
            try session.fixture.wait(until: "the permission is gone") { try session.permissions(of: id) == [:] }
        }

        @Test(
            "A sandbox without a valid identity is refused",
            arguments: ["", "[Application]\n", "[Application]\nname=../../x\n", "[Other]\nname=org.a.B\n"])
        func unknown(info: String) throws {
            let session = try PortalSession.started()
            let program = try session.sandboxed(app, info: info)
            #expect(try program.add("/usr/bin/env").error == "NotAllowed")
            #expect(try program.call("List", "(s)", [""]).error == "NotAllowed")
            #expect(try session.fixture.list("--all").isEmpty)
        }
    }
}
