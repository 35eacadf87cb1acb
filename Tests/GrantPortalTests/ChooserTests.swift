import Foundation
import Glibc
import TestSupport
import Testing

extension GrantPortalTests {
    /// The user chooses a file in the dialog of a sandboxed program. The real xdg-desktop-portal,
    /// with a dialog that answers immediately, makes a document of it by our service.
    @Suite(.enabled(if: Desktop.isPossible, "xdg-desktop-portal is not installed"))
    struct Chooser {
        enum Sandbox: String, CaseIterable {
            case bubblewrap, flatpak
            static let possible = allCases.filter { $0 == .flatpak ? FlatpakApplication.isPossible : Machine.offers("bwrap") }
        }
        private let app = FlatpakApplication.name

        private struct Setting {
            let session: PortalSession
            let desktop: Desktop
            let program: PortalClient
        }

        private func started(_ sandbox: Sandbox) throws -> Setting {
            switch sandbox {
            case .bubblewrap:
                let session = try PortalSession.started()
                return Setting(session: session, desktop: try Desktop(session), program: try session.sandboxed(app))
            case .flatpak:
                let session = try PortalSession.started(owner: try #require(FlatpakApplication.owner))
                let flatpak = try FlatpakApplication(in: session)
                return Setting(session: session, desktop: try Desktop(session), program: try flatpak.client())
            }
        }

        /// What the program has of the one path that the dialog has given it: it has to be a document's.
        private func document(_ choice: PortalClient.Choice, _ setting: Setting) throws -> (id: String, path: String) {
            let path = try #require(choice.response == 0 ? choice.paths.only : nil, "\(choice)")
            #expect(path.hasPrefix(setting.session.mountpoint + "/"), "\(path)")
            let below = path.dropFirst(setting.session.mountpoint.count + 1)
            #expect(try setting.desktop.asked() == app)
            return (String(below.prefix { $0 != "/" }), "/run/flatpak/doc/" + below)
        }

        private func grants(_ setting: Setting) throws -> [String] {
            try setting.session.fixture.list("--view", "app:\(app)").map { "\($0.name) \($0.access) \($0.path ?? "")" }
        }

        @Test(
            "A chosen file is a document that the application reads, saves and loses live",
            arguments: Sandbox.possible)
        func opened(sandbox: Sandbox) throws {
            let setting = try started(sandbox)
            let (session, program) = (setting.session, setting.program)
            let (file, readOnly) = (try session.file(), try session.file("only read.txt"))
            try setting.desktop.choose([file], writable: true)
            let (id, path) = try document(program.choose("OpenFile"), setting)
            #expect(try grants(setting) == ["\(id) read-write \(file)"])
            #expect(try program.read(path).texts == ["old\n"])
            #expect(try program.save(path, "new\n") == nil && text(file) == "new\n")
            #expect(try program.write(path, "in place\n").errno == nil && text(file) == "in place\n")
            // The same file again is the same document, once the grant has followed the save.
            try session.fixture.wait(until: "the document is of what was saved") {
                try session.host.call("Lookup", "(ay)", [["path": file]]).texts == [id]
            }
            #expect(try document(program.choose("OpenFile"), setting).id == id)

            try setting.desktop.choose([readOnly], writable: false)
            let second = try document(program.choose("OpenFile"), setting)
            #expect(try Set(grants(setting)) == ["\(id) read-write \(file)", "\(second.id) read-only \(readOnly)"])
            #expect(try program.read(second.path).texts == ["old\n"] && program.write(second.path, "x").errno == "EROFS")

            try session.grantfs("revoke", id, "--view", "app:\(app)").orThrow()
            #expect(try program.read(path).errno == "EACCES" && program.read(second.path).texts == ["old\n"])
            try session.fixture.wait(until: "the permission is gone") { try session.permissions(of: id)?[app] == nil }
        }

        @Test("Each chosen file is a document if it can be", arguments: Sandbox.possible)
        func several(sandbox: Sandbox) throws {
            let setting = try started(sandbox)
            let files = [try setting.session.file("one"), try setting.session.file("zwei ü")]
            try setting.desktop.choose(files + [setting.session.fixture.base + "/missing"], writable: true)
            let choice = try setting.program.choose("OpenFile", ["multiple": ["variant": ["b", true]]])
            let names = choice.paths.map { ($0 as NSString).lastPathComponent }
            #expect(choice.response == 0 && names.prefix(2) == ["one", "zwei ü"], "\(choice)")
            #expect(try Set(setting.session.fixture.list("--view", "app:\(app)").compactMap(\.path)) == Set(files))
        }

        @Test("A chosen directory is one document with all its contents", arguments: Sandbox.possible)
        func directory(sandbox: Sandbox) throws {
            let setting = try started(sandbox)
            let program = setting.program
            let file = try setting.session.file()
            let papers = (file as NSString).deletingLastPathComponent
            try setting.desktop.choose([papers], writable: true)
            let (id, path) = try document(program.choose("OpenFile", ["directory": ["variant": ["b", true]]]), setting)
            #expect(try grants(setting) == ["\(id) read-write \(papers)"])
            #expect(try program.list(path).texts == ["report.txt"] && program.read(path + "/report.txt").texts == ["old\n"])
            #expect(try program.write(path + "/new.txt", "new\n").errno == nil && text(papers + "/new.txt") == "new\n")
            try setting.session.grantfs("revoke", id, "--view", "app:\(app)").orThrow()
            #expect(try program.read(path + "/report.txt").errno == "EACCES")
        }

        @Test("A chosen name for a save is a document, with or without a file", arguments: Sandbox.possible)
        func saved(sandbox: Sandbox) throws {
            let setting = try started(sandbox)
            let (session, program) = (setting.session, setting.program)
            let file = try session.file()
            let new = (file as NSString).deletingLastPathComponent + "/new file.txt"
            for place in [file, new] {
                try setting.desktop.choose([place])
                let (id, path) = try document(program.choose("SaveFile"), setting)
                #expect(try grants(setting).contains("\(id) read-write \(place)"))
                #expect(try program.save(path, "saved\n") == nil && text(place) == "saved\n")
            }
            #expect(try session.fixture.list("--view", "app:\(app)").count == 2)
        }

        @Test(
            "A file that the application can reach gets its host path, not a document",
            .enabled(if: FlatpakApplication.isPossible, Comment(rawValue: FlatpakApplication.why)))
        func reached() throws {
            // Flatpak's `home` and `host` leave /tmp out.
            let session = try PortalSession.started(owner: try #require(FlatpakApplication.owner), in: "/var/tmp")
            let flatpak = try FlatpakApplication(in: session)
            let desktop = try Desktop(session)
            let file = try session.fixture.directory("home/letters") + "/letter.txt"
            try "old\n".write(toFile: file, atomically: false, encoding: .utf8)
            chown(file, session.fixture.owner.uid, session.fixture.owner.gid)
            try desktop.choose([file], writable: true)
            try flatpak.flatpak("override", "--user", "--filesystem=home:ro", app).orThrow()
            let reading = try flatpak.client()
            #expect(try reading.read(file).texts == ["old\n"])
            // It may read there and no more, and the file was chosen to be written to.
            #expect(try reading.choose("OpenFile").paths != [file])
            let documents = try session.fixture.list("--view", "app:\(app)").map(\.access)
            #expect(documents == ["read-write"])
            try flatpak.flatpak("override", "--user", "--filesystem=home", app).orThrow()
            let writing = try flatpak.client()
            #expect(try writing.choose("OpenFile").paths == [file] && writing.write(file, "new\n").errno == nil)
            #expect(try session.fixture.list("--view", "app:\(app)").count == 1)
        }

        @Test(
            "A cancelled dialog and a program outside a sandbox make no documents",
            arguments: Sandbox.possible.prefix(1))
        func nothing(sandbox: Sandbox) throws {
            let setting = try started(sandbox)
            let file = try setting.session.file()
            try setting.desktop.choose([file], writable: true, response: 1)
            let cancelled = try setting.program.choose("OpenFile")
            #expect(cancelled.response == 1)
            try setting.desktop.choose([file], writable: true)
            #expect(try setting.session.host.choose("OpenFile").paths == [file])
            #expect(try setting.session.fixture.list("--all").isEmpty)
        }
    }
}

extension Array {
    fileprivate var only: Element? { count == 1 ? self[0] : nil }
}
