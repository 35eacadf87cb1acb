import Foundation
import Glibc
import TestSupport
import Testing

extension GrantPortalTests {
    /// What an application was given, and nothing beside it: other files, more permissions, a longer time.
    @Suite(.enabled(if: Machine.offers("bwrap"), Comment(rawValue: Machine.needs("bwrap"))))
    struct Bounds {
        private let app = "org.test.App"
        private let other = "org.other.App"
        private let transfer = "org.freedesktop.portal.FileTransfer"

        private func held(_ client: PortalClient, _ member: String, _ signature: String, _ arguments: [Any], open: [String] = [])
            throws -> PortalAnswer
        {
            try client.call(member, signature, arguments, open: open, interface: transfer, service: PortalClient.documents)
        }

        @Test("A file in a directory that the host replaced is not one of the document's")
        func anotherDirectory() throws {
            let session = try PortalSession.started()
            let papers = (try session.file() as NSString).deletingLastPathComponent
            let program = try session.sandboxed(app)
            let id = try session.host.addFull([papers], flags: 3 | 8, app: app, ["read", "write", "grant-permissions"]).id
            let directory = "/run/flatpak/doc/\(id)/papers"
            #expect(try program.list(directory).errno == nil)
            try FileManager.default.moveItem(atPath: papers, toPath: papers + "-before")
            let secret = try session.file("secret.txt", "secret\n")
            #expect(try program.write(directory + "/secret.txt", "mine\n").errno == nil)
            let answer = try program.add(directory + "/secret.txt")
            // By then the mount may have followed the directory: then it is the file that was written.
            if answer.error == nil { #expect(try program.read("/run/flatpak/doc/\(answer.id)/secret.txt").texts == ["mine\n"]) }
            #expect(try session.fixture.list().allSatisfy { $0.path != secret })
        }

        @Test("A file below a mount over a document's directory is not one of the document's", .enabled(if: Identity.isRoot, "needs root"))
        func mountedOver() throws {
            let session = try PortalSession.started()
            let papers = (try session.file() as NSString).deletingLastPathComponent
            let below = try session.fixture.source("papers/below")
            let vault = try session.fixture.directory("outside/vault")
            try "secret\n".write(toFile: vault + "/secret.txt", atomically: false, encoding: .utf8)
            let program = try session.sandboxed(app)
            let id = try session.host.addFull([papers], flags: 3 | 8, app: app, ["read", "write", "grant-permissions"]).id
            let directory = "/run/flatpak/doc/\(id)/papers"
            #expect(try program.write(directory + "/below/secret.txt", "mine\n").errno == nil)
            let inner = try program.ask(["hold": directory + "/below/secret.txt"])["result"] as? Int
            for place in [below, papers] {
                try Command.run(["mount", "--bind", vault, place]).orThrow()
                defer { _ = try? Command.run(["umount", "-l", place]) }
                var request = PortalClient.request("Add", "(hbb)", [0, true, true])
                if place == papers {
                    #expect(try program.write(directory + "/secret.txt", "mine\n").errno == nil)
                    request["open"] = [[directory + "/secret.txt", PortalClient.path]]
                } else {
                    request["open"] = [[try #require(inner), 0]]
                }
                let answer = PortalAnswer(try program.ask(request))
                #expect(answer.error == "InvalidArgument", "\(place): \(answer)")
            }
            #expect(try session.fixture.list().allSatisfy { $0.path?.hasSuffix("secret.txt") == false })
        }

        @Test("Files of directories in several filesystems are found by their shown numbers")
        func severalFilesystems() throws {
            let session = try PortalSession.started()
            let papers = (try session.file() as NSString).deletingLastPathComponent
            let apart = "/dev/shm/grantfs-portal-\(UUID().uuidString)"
            try FileManager.default.createDirectory(atPath: apart, withIntermediateDirectories: false)
            defer { try? FileManager.default.removeItem(atPath: apart) }
            try "apart\n".write(toFile: apart + "/report.txt", atomically: false, encoding: .utf8)
            let program = try session.sandboxed(app)
            for directory in [papers, apart] {
                let id = try session.host.addFull([directory], flags: 3 | 8, app: app, ["read", "grant-permissions"]).id
                let inner = try program.add("/run/flatpak/doc/\(id)/\((directory as NSString).lastPathComponent)/report.txt")
                #expect(inner.error == nil, "\(directory): \(inner)")
                #expect(try session.host.call("Info", "(s)", [inner.id]).texts == [directory + "/report.txt"])
            }
        }

        @Test(
            "A directory that a sandbox masks in part becomes no document",
            arguments: [["--tmpfs", "/h/.ssh"], ["--ro-bind", "HOME/.ssh", "/h/.ssh"], ["--ro-bind", "/dev/null", "/h/.ssh/key"]])
        func masked(options: [String]) throws {
            let session = try PortalSession.started()
            let home = try session.fixture.source("home")
            try "key\n".write(toFile: try session.fixture.source("home/.ssh") + "/key", atomically: false, encoding: .utf8)
            try "x\n".write(toFile: try session.fixture.source("home/notes") + "/x", atomically: false, encoding: .utf8)
            let program = try session.sandboxed(
                app, binding: [(home, "/h")], options: options.map { $0.replacingOccurrences(of: "HOME", with: home) })
            #expect(try program.addFull(["/h"], flags: 3 | 8, app: app, ["read", "write"]).error == "InvalidArgument")
            let key = try held(program, "StartTransfer", "(a{sv})", [[String: Any]()]).id
            #expect(try held(program, "AddFiles", "(saha{sv})", [key, [0], [String: Any]()], open: ["/h"]).error == "NotAllowed")
            #expect(try session.fixture.list("--all").isEmpty)
            // Beside it there is nothing else than on the host.
            #expect(try program.addFull(["/h/notes"], flags: 3 | 8, app: app, ["read", "write"]).error == nil)
        }

        @Test("A mount below a directory that the host also has hides nothing", .enabled(if: Identity.isRoot, "needs root"))
        func mountedBelow() throws {
            let session = try PortalSession.started()
            let home = try session.fixture.source("home")
            let (place, vault) = (try session.fixture.source("home/place"), try session.fixture.directory("outside/vault"))
            try Command.run(["mount", "--bind", vault, place]).orThrow()
            defer { _ = try? Command.run(["umount", "-l", place]) }
            let program = try session.sandboxed(app, binding: [(home, "/h")])
            #expect(try program.addFull(["/h"], flags: 3 | 8, app: app, ["read", "write"]).error == nil)
        }

        @Test("An application gives no more of a foreign document than its own file permits")
        func ofOthers() throws {
            let session = try PortalSession.started()
            let file = try session.file()
            let papers = (file as NSString).deletingLastPathComponent
            let id = try session.host.addFull([file], app: other, ["read", "write"]).id
            let program = try session.sandboxed(app, options: ["--ro-bind", papers, "/papers"])
            for receiver in [app, "org.third.App"] {
                let answer = try program.addFull(["/papers/report.txt"], app: receiver, ["read", "grant-permissions", "delete"])
                #expect(answer.id == id, "\(answer)")
                #expect(try session.permissions(of: id)?[receiver] == ["read", "grant-permissions"])
            }
            #expect(try program.call("Delete", "(s)", [id]).error == "NotAllowed")
            #expect(try session.permissions(of: id)?[other] == ["read", "write"])
        }

        @Test("An application without the read permission has no other one")
        func withoutReading() throws {
            let session = try PortalSession.started()
            let id = try session.host.addFull([try session.file()], app: app, ["read", "grant-permissions", "delete"]).id
            #expect(try session.host.call("GrantPermissions", "(ssas)", [id, other, ["read"]]).error == nil)
            let program = try session.sandboxed(app)
            #expect(try session.host.call("RevokePermissions", "(ssas)", [id, app, ["read"]]).error == nil)
            #expect(try program.call("RevokePermissions", "(ssas)", [id, other, ["read"]]).error == "NotAllowed")
            #expect(try program.call("GrantPermissions", "(ssas)", [id, other, ["grant-permissions"]]).error == "NotAllowed")
            #expect(try program.call("Delete", "(s)", [id]).error == "NotAllowed")
            #expect(try session.permissions(of: id)?[other] == ["read"])
            #expect(try session.host.call("GrantPermissions", "(ssas)", [id, app, ["read"]]).error == nil)
            #expect(try program.call("Delete", "(s)", [id]).error == nil)
        }

        @Test(
            "A file of a directory becomes a document only if its holder may share it")
        func ofADirectory() throws {
            let session = try PortalSession.started()
            let papers = (try session.file() as NSString).deletingLastPathComponent
            let program = try session.sandboxed(app)
            let id = try session.host.addFull([papers], flags: 3 | 8, app: app, ["read"]).id
            let inner = "/run/flatpak/doc/\(id)/papers/report.txt"
            #expect(try program.add(inner).error == "NotAllowed")
            #expect(try program.addFull([inner], app: other, ["read", "grant-permissions", "delete"]).error == "NotAllowed")
            // The same for a document that a program of the owner gives on after it got it from the
            // application.
            let seen = "\(session.view(of: app))/\(id)/papers/report.txt"
            #expect(try session.host.addFull([seen], app: other, ["read"]).error == "NotAllowed")
            #expect(try session.fixture.list().count == 2)
            #expect(try session.host.call("GrantPermissions", "(ssas)", [id, app, ["grant-permissions"]]).error == nil)
            let given = try program.addFull([inner], app: other, ["read", "grant-permissions", "delete"])
            #expect(try session.permissions(of: given.id)?[other] == ["read", "grant-permissions"], "\(given)")
            #expect(try session.host.addFull([seen], app: "org.third.App", ["read", "delete"]).id == given.id)
            #expect(try session.permissions(of: given.id)?["org.third.App"] == ["read"])
        }

        @Test("An application whose grant expired regains it only from the owner")
        func expired() throws {
            let session = try PortalSession.started()
            let file = try session.file()
            let all = ["read", "write", "grant-permissions", "delete"]
            let id = try session.host.addFull([file], app: app, all).id
            #expect(try session.host.call("GrantPermissions", "(ssas)", [id, other, all]).error == nil)
            let papers = (file as NSString).deletingLastPathComponent
            let (program, second) = (try session.sandboxed(app, binding: [(papers, "/papers")]), try session.sandboxed(other))
            try session.grantfs("set", id, "--view", "app:\(app)", "--expires", "1s").orThrow()
            let path = "/run/flatpak/doc/\(id)/report.txt"
            try session.fixture.wait(until: "its time is up") { try program.read(path).errno != nil }
            for answer in [
                try program.call("GrantPermissions", "(ssas)", [id, "org.third.App", ["read"]]),
                try program.add("/papers/report.txt"),
                try second.call("GrantPermissions", "(ssas)", [id, app, ["read"]]), try second.addFull([path], app: app, ["read"]),
                try program.call("RevokePermissions", "(ssas)", [id, other, ["read"]]),
                try program.call("Delete", "(s)", [id]),
            ] { #expect(answer.error == "NotAllowed", "\(answer)") }
            #expect(try program.call("GetHostPaths", "(as)", [[id]]).dictionary.isEmpty)
            // Nor by giving some of it up.
            #expect(try program.call("RevokePermissions", "(ssas)", [id, app, ["delete"]]).error == nil)
            #expect(try program.read(path).errno != nil)
            #expect(try session.fixture.list("--all").count == 3)
            #expect(try session.host.call("GrantPermissions", "(ssas)", [id, app, ["read"]]).error == nil)
            #expect(try program.read(path).texts == ["old\n"])
            #expect(try session.permissions(of: id)?[app] == ["read"])
        }

        @Test("A transfer that ends when taken goes to one of two concurrent takers")
        func takenOnce() throws {
            let session = try PortalSession.started()
            let takers = [try session.sandboxed(app), try session.sandboxed(other)]
            let files = try (0..<15).map { try session.file("t\($0)") }
            for _ in 0..<3 {
                let key = try held(session.host, "StartTransfer", "(a{sv})", [[String: Any]()]).id
                for _ in 0..<4 {
                    let added = try held(
                        session.host, "AddFiles", "(saha{sv})", [key, Array(files.indices), [String: Any]()], open: files)
                    #expect(added.error == nil, "\(added)")
                }
                let request = PortalClient.request(
                    "RetrieveFiles", "(sa{sv})", [key, [String: Any]()], interface: transfer, service: PortalClient.documents)
                for taker in takers { try taker.begin(request) }
                let answers = try takers.map { PortalAnswer(try $0.answer()) }
                #expect(answers.filter { $0.error == nil }.count == 1, "\(answers)")
                #expect(answers.filter { $0.error?.hasSuffix("AccessDenied") == true }.count == 1)
            }
        }

        @Test("An error text tells an application no path of the host")
        func errorTexts() throws {
            let session = try PortalSession.started()
            let store = session.fixture.base + "/store"
            let program = try session.sandboxed(app, binding: [(store, "/b")])
            let answer = try program.addFull(["/b"], flags: 3 | 8, app: app, ["read"])
            #expect(answer.error == "InvalidArgument" && answer.message == "Invalid fd passed", "\(answer)")
            #expect(try session.host.addFull([store], flags: 3 | 8).message?.contains(store) == true)
        }
    }
}
