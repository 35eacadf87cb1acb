import Foundation
import Glibc
import TestSupport
import Testing

extension GrantPortalTests {
    /// A real application of Flatpak, with Flatpak's proxy between it and the bus.
    @Suite(.enabled(if: FlatpakApplication.isPossible, Comment(rawValue: FlatpakApplication.why)))
    struct InFlatpak {
        private let app = FlatpakApplication.name
        private var view: String { "app:\(app)" }

        private func started() throws -> (PortalSession, FlatpakApplication) {
            let session = try PortalSession.started(owner: try #require(FlatpakApplication.owner))
            return (session, try FlatpakApplication(in: session))
        }

        /// Gives the application a document by Flatpak's command: its id, and where the application has it.
        private func export(_ file: String, _ flatpak: FlatpakApplication, _ session: PortalSession) throws -> (id: String, path: String) {
            let path = flatpak.inside(try flatpak.flatpak("document-export", "--app=\(app)", "-r", "-w", file).orThrow().trimmed)
            let id = try #require(session.fixture.list("--view", view).first { $0.path == file }?.name)
            #expect(path == "/run/flatpak/doc/\(id)/" + (file as NSString).lastPathComponent)
            return (id, path)
        }

        private static let works = "read=OK map=OK open=OK"
        private static let lost = "read=\(Machine.losesErrorsOfReads ? "EIO" : "EACCES") map=SIGBUS open=EACCES"

        @Test(
            "A Flatpak application loses a document live in every way of revocation"
        )
        func loses() throws {
            let (session, flatpak) = try started()
            let kept = try export(session.file("kept.txt", "a document\n"), flatpak, session)
            for way in ["revoke", "permission-remove", "document-unexport", "permission-reset"] {
                let file = try session.file("\(way).txt", "a document\n")
                let (id, path) = try export(file, flatpak, session)
                #expect(try flatpak.flatpak("document-info", file).orThrow().text.contains(app))
                #expect(try flatpak.flatpak("document-list", app).orThrow().text.contains(id))
                #expect(try flatpak.flatpak("permission-show", app).orThrow().text.contains(id))
                let program = try flatpak.run("probe", ["document", path, kept.path])
                try program.expect("ready")
                program.send("")
                try program.expect("\(Self.works) cwd=OK | \(Self.works)")
                switch way {
                case "revoke": try session.grantfs("revoke", id, "--view", view).orThrow()
                case "permission-remove": try flatpak.flatpak(way, "documents", id, app).orThrow()
                case "permission-reset": try flatpak.flatpak(way, app).orThrow()
                default: try flatpak.flatpak(way, file).orThrow()
                }
                // Flatpak's permission commands change the permission store and return immediately.
                let gone = way == "permission-reset" ? [id, kept.id] : [id]
                try session.fixture.wait(until: "\(way): it is withdrawn") {
                    try !session.fixture.list("--view", view).contains { gone.contains($0.name) }
                }
                let other = way == "permission-reset" ? Self.lost : Self.works
                let opened = way == "document-unexport" ? "ENOENT" : "EACCES"
                let expected = "\(Self.lost.replacingOccurrences(of: "open=EACCES", with: "open=\(opened)")) cwd=EACCES | \(other)"
                if way == "revoke" {
                    program.send("")
                    try program.expect(expected)
                } else {
                    // The mounts follow the list of grants.
                    try session.fixture.wait(until: "\(way): the program is refused") {
                        program.send("")
                        return program.line() == expected
                    }
                }
                try session.fixture.wait(until: "\(way): the permission is gone") { try session.permissions(of: id)?[app] == nil }
                #expect(try !flatpak.flatpak("permission-show", app).text.contains(id))
                guard way == "revoke" else { continue }
                try session.grantfs("restore", id, "--view", view).orThrow()
                program.send("")
                try program.expect("\(Self.lost.replacingOccurrences(of: "open=EACCES", with: "open=OK")) cwd=EACCES | \(Self.works)")
                program.closeInput()
                #expect(program.wait(within: 30) == 0)
            }
        }

        @Test("A Flatpak application loses everything it holds below a revoked directory")
        func everything() throws {
            let (session, _) = try started()
            let directory = try session.fixture.source("tree")
            try Probe.prepare(directory, for: session.fixture.owner)
            let id = try session.host.addFull([directory], flags: 3 | 8, app: app, ["read", "write"]).id
            let words = ["flatpak", "run", "--command=probe", app, "run", "/run/flatpak/doc/\(id)/tree"]
            let probe = try Probe(running: words, environment: session.fixture.environment, as: session.fixture.owner)
            let before = Dictionary(try probe.attempt().map { ($0.row, $0.errno) }) { $1 }
            #expect(before.values.count { $0 == "OK" } > 100, "\(before.count { $0.value == "OK" }) of \(before.count)")
            try session.grantfs("revoke", id, "--view", view).orThrow()
            for result in try probe.attempt() where before[result.row] == "OK" {
                let isRight =
                    switch result.after {
                    case "FAIL": result.errno != "OK"
                    case "ANY": true
                    case "EACCES" where Machine.losesErrorsOfReads: ["EACCES", "EIO"].contains(result.errno)
                    default: result.errno == result.after
                    }
                #expect(isRight, "\(result.row) gives \(result.errno), must give \(result.after)")
            }
            for result in try probe.letGo() { #expect(result.errno == "OK", "\(result.row)") }
        }

        @Test(
            "A Flatpak application proves a file by a descriptor"
        )
        func proves() throws {
            let (session, flatpak) = try started()
            let file = try session.file()
            let papers = (file as NSString).deletingLastPathComponent
            let program = try flatpak.client(options: ["--filesystem=\(papers)"])
            let own = try program.ask(["call": "GetMountPoint"])["result"] as? [String]
            #expect(own == [session.mountpoint])
            let answer = try program.add(file)
            #expect(answer.error == nil, "\(answer)")
            #expect(try session.host.call("Info", "(s)", [answer.id]).texts == [file])
            #expect(try session.permissions(of: answer.id) == [app: ["read", "write", "grant-permissions"]])
            #expect(try program.save("/run/flatpak/doc/\(answer.id)/report.txt", "new\n") == nil)
            #expect(text(file) == "new\n")
            // What Flatpak shows it under another name than the host's.
            #expect(try program.write("/var/data/mine.txt", "mine\n").errno == nil)
            let mine = try program.add("/var/data/mine.txt")
            #expect(mine.error == nil, "\(mine)")
            #expect(
                try session.host.call("Info", "(s)", [mine.id]).texts == [session.fixture.base + "/home/.var/app/\(app)/data/mine.txt"])
            let installed = try program.add("/app/bin/probe")
            #expect(try session.permissions(of: installed.id) == [app: ["read", "grant-permissions"]], "\(installed)")
            // In a filesystem of the sandbox alone.
            #expect(try program.write("/dev/shm/report.txt", "x").errno == nil)
            #expect(try program.add("/dev/shm/report.txt").error == "InvalidArgument")
            // What it has as a document is that document.
            #expect(try program.add("/run/flatpak/doc/\(answer.id)/report.txt").id == answer.id)
            let others = try session.host.addFull([try session.file("other")], app: "org.other.App", ["read"]).id
            #expect(try program.read("/run/flatpak/doc/\(others)/other").errno == "ENOENT")
            #expect(try program.call("Info", "(s)", [others]).error == "NotAllowed")
        }

        @Test("A file on the command line of `flatpak run --file-forwarding` becomes a document")
        func forwarded() throws {
            let (session, flatpak) = try started()
            let file = try session.file()
            let output = try flatpak.flatpak("run", "--command=echo", "--file-forwarding", app, "@@", file, "@@").orThrow()
            let path = flatpak.inside(output.trimmed)
            #expect(try session.fixture.list("--view", view).map(\.path) == [file])
            #expect(try flatpak.flatpak("run", "--command=cat", app, path).orThrow().text == "old\n")
        }
    }
}
