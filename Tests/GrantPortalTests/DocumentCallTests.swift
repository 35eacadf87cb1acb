import Foundation
import Glibc
import TestSupport
import Testing

extension GrantPortalTests {
    @Suite struct Calls {
        @Test(
            "An added file is below its id under its name and can be written")
        func added() throws {
            let session = try PortalSession.started()
            let file = try session.file()
            let id = try session.host.add(file).id
            #expect(id.count == 8 && id.allSatisfy { $0.isHexDigit && !$0.isUppercase })
            #expect(try FileManager.default.contentsOfDirectory(atPath: session.mountpoint).filter { $0 != "by-app" } == [id])
            #expect(try FileManager.default.contentsOfDirectory(atPath: session.mountpoint + "/" + id) == ["report.txt"])
            #expect(text("\(session.mountpoint)/\(id)/report.txt") == "old\n")
            #expect(try session.host.write("\(session.mountpoint)/\(id)/report.txt", "new\n").error == nil)
            #expect(text(file) == "new\n")
            let host = try session.host
            #expect(try host.call("Info", "(s)", [id]).texts == [file])
            #expect(try host.call("Lookup", "(ay)", [["path": file]]).texts == [id])
            #expect(try host.call("Lookup", "(ay)", [["path": "\(session.mountpoint)/\(id)/report.txt"]]).texts == [id])
            #expect(try host.call("List", "(s)", [""]).dictionary as? [String: String] == [id: file])
            #expect(try host.call("GetHostPaths", "(as)", [[id, "ffffffff"]]).dictionary as? [String: String] == [id: file])
            let grants = try session.fixture.list()
            #expect(grants.map(\.view) == ["app:"] && grants.map(\.name) == [id] && grants.map(\.path) == [file])
        }

        @Test("Each interface of the portal reports its version")
        func versions() throws {
            let session = try PortalSession.started()
            for (interface, version) in [("Documents", 5), ("FileTransfer", 1)] {
                let answer = try session.host.call(
                    "Get", "(ss)", ["org.freedesktop.portal.\(interface)", "version"], interface: "org.freedesktop.DBus.Properties")
                #expect(answer.values.first as? Int == version)
            }
        }

        @Test("The same file gives the same document unless a new one is requested")
        func reused() throws {
            let session = try PortalSession.started()
            let (file, host) = (try session.file(), try session.host)
            let first = try host.add(file).id
            #expect(try host.add(file).id == first)
            #expect(try host.add(file, reuse: false).id != first)
            #expect(try host.add(file, persistent: false).id != first)
            let renamed = file + ".renamed"
            try FileManager.default.moveItem(atPath: file, toPath: renamed)
            #expect(try host.add(renamed).id == first)
            try session.fixture.wait(until: "the document's path is the new one") {
                try host.call("Info", "(s)", [first]).texts == [renamed]
            }
            // By the file itself, not by its former path.
            try "other\n".write(toFile: file, atomically: false, encoding: .utf8)
            #expect(try host.add(file).id != first)
        }

        @Test("Several files are added in one call, and each once")
        func several() throws {
            let session = try PortalSession.started()
            let files = [try session.file("one", "1"), try session.file("two", "2")]
            let answer = try session.host.addFull(files + [files[0]], app: "org.test.App", ["read"])
            let ids = try #require(answer.values.first as? [String])
            #expect(ids.count == 3 && ids[0] == ids[2] && ids[0] != ids[1])
            #expect((answer.values.last as? [String: String])?["mountpoint"] == session.mountpoint)
            #expect(try session.host.call("Info", "(s)", [ids[1]]).values.last as? [String: [String]] == ["org.test.App": ["read"]])
            #expect(try session.host.call("List", "(s)", ["org.test.App"]).dictionary.count == 2)
            #expect(try session.host.call("List", "(s)", ["org.other.App"]).dictionary.isEmpty)
            let view = session.view(of: "org.test.App")
            #expect(text("\(view)/\(ids[0])/one") == "1")
            #expect(try session.host.write("\(view)/\(ids[0])/one", "x").errno == "EROFS")
            #expect(text(files[0]) == "1")
        }

        @Test("One file that cannot be added keeps all from being added")
        func allOrNothing() throws {
            let session = try PortalSession.started()
            let file = try session.file()
            #expect(try session.host.addFull([file, session.fixture.base]).error == "InvalidArgument")
            #expect(try session.fixture.list("--all").isEmpty)
        }

        @Test("A directory is a document only on request")
        func directories() throws {
            let session = try PortalSession.started()
            let file = try session.file()
            let directory = URL(fileURLWithPath: file).deletingLastPathComponent().path
            #expect(try session.host.addFull([directory]).error == "InvalidArgument")
            #expect(try session.host.addFull([file], flags: 3 | 8).error == "InvalidArgument")
            let id = try session.host.addFull([directory], flags: 3 | 8, app: "org.test.App", ["read", "write"]).id
            #expect(try session.host.call("Info", "(s)", [id]).texts == [directory])
            #expect(try session.host.call("Lookup", "(ay)", [["path": directory]]).texts == [id])
        }

        @Test(
            "A name in a directory is a document, with or without a file"
        )
        func named() throws {
            let session = try PortalSession.started()
            let (file, host) = (try session.file(), try session.host)
            let directory = URL(fileURLWithPath: file).deletingLastPathComponent().path
            let id = try host.call("AddNamed", "(haybb)", [0, ["path": "new.txt"], true, false], open: [directory]).id
            #expect(try host.write("\(session.mountpoint)/\(id)/new.txt", "made\n").error == nil)
            #expect(text(directory + "/new.txt") == "made\n")
            let full = try host.call(
                "AddNamedFull", "(hayusas)", [0, ["path": "report.txt"], 1, "org.test.App", ["read", "write"]], open: [directory])
            #expect(text("\(session.mountpoint)/\(full.id)/report.txt") == "old\n" && text(file) == "old\n")
            symlink(file, directory + "/link")
            for name: [String: Any] in [
                ["path": "a/b"], ["path": ""], ["path": "."], ["path": ".."], ["bytes": [97, 255, 0]], ["bytes": [97, 0, 98, 0]],
                ["path": "link"],
            ] {
                let answer = try host.call("AddNamed", "(haybb)", [0, name, true, false], open: [directory])
                #expect(answer.error == "InvalidArgument", "\(name): \(answer)")
            }
            #expect(try host.call("AddNamed", "(haybb)", [0, ["path": "x"], true, false], open: [file]).error == "InvalidArgument")
            let flags = try host.call("AddNamedFull", "(hayusas)", [0, ["path": "x"], 8, "", [String]()], open: [directory])
            #expect(flags.error == "InvalidArgument")
            #expect(text(directory + "/x") == nil)
        }

        @Test(
            "A descriptor that proves no access is refused",
            arguments: ["file", "link", "fifo", "device", "none"])
        func noProof(kind: String) throws {
            let session = try PortalSession.started()
            let file = try session.file()
            let place = file + "." + kind
            symlink(file, file + ".link")
            mkfifo(file + ".fifo", 0o600)
            let answer: PortalAnswer =
                switch kind {
                case "file": try session.host.call("Add", "(hbb)", [0, true, true], open: [file], flags: Int(O_RDONLY))
                case "link":
                    try session.host.call("Add", "(hbb)", [0, true, true], open: [place], flags: PortalClient.path | Int(O_NOFOLLOW))
                case "device": try session.host.add("/dev/null")
                case "none": try session.host.call("AddFull", "(ahusas)", [[Int](), 64, "", [String]()])
                default: try session.host.add(place)
                }
            #expect(answer.error == "InvalidArgument", "\(answer)")
            #expect(try session.fixture.list("--all").isEmpty)
        }

        @Test("A file of the store or of a mount is refused")
        func ownPlaces() throws {
            let session = try PortalSession.started()
            #expect(try session.host.add(session.fixture.store + "/grants.sqlite").error != nil)
            #expect(try session.host.addFull([session.fixture.base], flags: 9).error == "InvalidArgument")
            #expect(try session.host.addFull([session.mountpoint], flags: 9).error == "InvalidArgument")
            #expect(try session.fixture.list("--all").isEmpty)
        }

        @Test("Invalid arguments of a portal call are refused with the portal's error")
        func words() throws {
            let session = try PortalSession.started()
            let (file, host) = (try session.file(), try session.host)
            let id = try host.add(file).id
            #expect(try host.addFull([file], flags: 64).error == "InvalidArgument")
            #expect(try host.addFull([file], app: "org.test.App", ["eat"]).error == "InvalidArgument")
            for app in ["app", "a..b", "../x.y", "org.1x", String(repeating: "a.", count: 200) + "a"] {
                #expect(try host.addFull([file], app: app, ["read"]).error == "InvalidArgument", "\(app)")
                #expect(try host.call("GrantPermissions", "(ssas)", [id, app, ["read"]]).error == "InvalidArgument", "\(app)")
            }
            #expect(try host.call("GrantPermissions", "(ssas)", [id, "org.test.App", ["eat"]]).error == "InvalidArgument")
            for member in ["GrantPermissions", "RevokePermissions"] {
                #expect(try host.call(member, "(ssas)", ["ffffffff", "org.test.App", ["read"]]).error == "NotFound")
            }
            #expect(try host.call("Delete", "(s)", ["../../etc"]).error == "NotFound")
            #expect(try host.call("Info", "(s)", ["ffffffff"]).error == "InvalidArgument")
            #expect(try host.call("Lookup", "(ay)", [["path": "relative"]]).error == "InvalidArgument")
            #expect(try host.call("Lookup", "(ay)", [["path": "/not/there"]]).error == "NotFound")
            #expect(try host.call("Add", "(s)", ["x"]).error == "org.freedesktop.DBus.Error.InvalidArgs")
            #expect(try host.call("GetMountPoint").texts == [session.mountpoint])
        }

        @Test("A deleted document disappears from every view and the permission store")
        func deleted() throws {
            let session = try PortalSession.started()
            let (file, host) = (try session.file(), try session.host)
            let id = try host.addFull([file], app: "org.test.App", ["read"]).id
            let view = session.view(of: "org.test.App")
            let held = try #require(FileHandle(forReadingAtPath: "\(view)/\(id)/report.txt"))
            #expect(try host.call("Delete", "(s)", [id]).error == nil)
            #expect(throws: (any Error).self) { try held.read(upToCount: 4) }
            #expect(text("\(session.mountpoint)/\(id)/report.txt") == nil)
            #expect(try session.permissions(of: id) == nil)
            #expect(try session.fixture.list("--all").isEmpty && text(file) == "old\n")
            #expect(try host.call("Delete", "(s)", [id]).error == "NotFound")
        }
    }
}
