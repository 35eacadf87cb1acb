import Foundation
import Glibc
import TestSupport
import Testing

/// A file beside a secret, granted in both forms.
struct GrantedDocument {
    let fixture: MountFixture
    let directory: String
    let mountpoint: String
    /// The file on the host, in the view, and in its directory of the view.
    var host: String { directory + "/report.txt" }
    var file: String { mountpoint + "/file" }
    var held: String { mountpoint + "/docs/report.txt" }

    init(_ fixture: MountFixture, options: String? = nil, _ more: String...) throws {
        self.fixture = fixture
        directory = try fixture.source("papers")
        try "old\n".write(toFile: directory + "/report.txt", atomically: false, encoding: .utf8)
        try "secret\n".write(toFile: directory + "/secret", atomically: false, encoding: .utf8)
        for name in ["report.txt", "secret"] { chown(directory + "/" + name, fixture.owner.uid, fixture.owner.gid) }
        for (name, form) in [("file", []), ("docs", ["--as-directory"])] {
            try fixture.grantfs(["grant", directory + "/report.txt", "--name", name] + form + more).orThrow()
        }
        mountpoint = try fixture.mount(options: options)
    }

    static func text(_ path: String) -> String? { try? String(contentsOfFile: path, encoding: .utf8) }
    func write(_ text: String, _ path: String) throws { try Data(text.utf8).write(to: URL(fileURLWithPath: path)) }

    func python(_ script: String, _ arguments: String...) throws -> Output {
        try Command.run(["/usr/bin/python3", "-c", script] + arguments, as: fixture.owner)
    }

    /// Files in the document's directory on the host that the grant added.
    var workplaces: [String] {
        ((try? FileManager.default.contentsOfDirectory(atPath: directory)) ?? []).filter { $0.hasPrefix(".grantfs-") }
    }
}

extension MountTests {
    @Suite struct AGrantOfAFile {
        @Test("A granted file is shown under its name and its directory shows only the file")
        func shown() throws {
            let document = try GrantedDocument(MountFixture())
            #expect(try FileManager.default.contentsOfDirectory(atPath: document.mountpoint).sorted() == ["docs", "file"])
            #expect(try FileManager.default.contentsOfDirectory(atPath: document.mountpoint + "/docs") == ["report.txt"])
            #expect(GrantedDocument.text(document.file) == "old\n")
            #expect(GrantedDocument.text(document.held) == "old\n")
            for path in ["/docs/secret", "/docs/papers/secret", "/file/secret"] {
                #expect(GrantedDocument.text(document.mountpoint + path) == nil, "\(path)")
            }
            let kinds = try Command.run(["find", document.mountpoint, "-mindepth", "1", "-printf", "%P %y %s\n"]).orThrow()
            #expect(kinds.lines.sorted().filter { !$0.hasPrefix("docs d") } == ["docs/report.txt f 4", "file f 4"])
            let grants = try fixtureJSON(document.fixture)
            #expect(grants.contains("\"kind\":\"document\"") && !grants.contains("\"kind\":\"directory\""), "\(grants)")
        }

        private func fixtureJSON(_ fixture: MountFixture) throws -> String {
            try fixture.grantfs("list", "--json").orThrow().text.replacingOccurrences(of: ": ", with: ":")
        }

        @Test("A granted file is written in place in every cache mode", arguments: ["shared", "exclusive", "none"])
        func inPlace(cache: String) throws {
            let document = try GrantedDocument(MountFixture(), options: "cache=\(cache)")
            for path in [document.file, document.held] {
                let handle = try #require(FileHandle(forUpdatingAtPath: path))
                try handle.seekToEnd()
                try handle.write(contentsOf: Data("more\n".utf8))
                try handle.synchronize()
                try handle.close()
            }
            #expect(GrantedDocument.text(document.host) == "old\nmore\nmore\n")
        }

        @Test("A granted file is followed when it is renamed and moved")
        func moved() throws {
            let document = try GrantedDocument(MountFixture())
            let handle = try #require(FileHandle(forReadingAtPath: document.file))
            let other = try document.fixture.directory("source/other") + "/renamed.txt"
            try FileManager.default.moveItem(atPath: document.host, toPath: other)
            try document.fixture.wait(until: "both forms show it, and its place is known") {
                try GrantedDocument.text(document.file) == "old\n" && GrantedDocument.text(document.held) == "old\n"
                    && document.fixture.list().allSatisfy { $0.path == other && $0.bookmark == "ok" }
            }
            #expect(try handle.readToEnd() == Data("old\n".utf8), "what was open goes on")
            try document.write("saved\n", document.mountpoint + "/docs/t")
            try #require(rename(document.mountpoint + "/docs/t", document.held) == 0)
            #expect(GrantedDocument.text(other) == "saved\n", "the name in the view stays, and leads to the file")
            #expect(!FileManager.default.fileExists(atPath: document.host))
        }

        @Test("A granted file renamed without a mount is found again")
        func renamedUnmounted() throws {
            let document = try GrantedDocument(MountFixture())
            try document.fixture.grantfs("unmount", document.mountpoint).orThrow()
            try FileManager.default.moveItem(atPath: document.host, toPath: document.directory + "/other")
            #expect(try document.fixture.list().map(\.bookmark) == ["moved", "moved"])
            try document.fixture.mount()
            #expect(GrantedDocument.text(document.file) == "old\n")
            #expect(GrantedDocument.text(document.held) == "old\n")
        }

        @Test("A granted file is followed through a save by rename on the host")
        func savedOnTheHost() throws {
            let document = try GrantedDocument(MountFixture())
            let handle = try #require(FileHandle(forReadingAtPath: document.file))
            try document.write("new\n", document.directory + "/.tmp")
            try #require(rename(document.directory + "/.tmp", document.host) == 0)
            try document.fixture.wait(until: "both forms show it") {
                GrantedDocument.text(document.file) == "new\n" && GrantedDocument.text(document.held) == "new\n"
            }
            #expect(try handle.readToEnd() == Data("old\n".utf8))
            try document.fixture.wait(until: "the log says so") {
                try document.fixture.grantfs("log").orThrow().text.contains("saved beside the grant")
            }
            #expect(try document.fixture.list().allSatisfy { $0.bookmark == "ok" && $0.state == "active" })
        }

        @Test(
            "A granted file shows writes and saves of the host in every cache mode",
            arguments: ["shared", "exclusive", "none"], [true, false])
        func writtenOnTheHost(cache: String, asRoot: Bool) throws {
            let user = asRoot ? Identity.current : Machine.plainUser
            guard let user, asRoot || Machine.usersCanMount else { return }
            let document = try GrantedDocument(MountFixture(owner: user), options: "cache=\(cache)")
            let append = "cat \"$1\" \"$2\"; echo more >> \"$3\""
            try Command.shell(append, document.file, document.held, document.host, as: user).orThrow()
            let isShown = { (text: String) in
                try [document.file, document.held].allSatisfy { try Command.run(["cat", $0], as: user).text == text }
            }
            try document.fixture.wait(until: "an appended line shows") { try isShown("old\nmore\n") }
            // Of the same length, in place.
            try Command.shell("printf OLD | dd of=\"$1\" conv=notrunc status=none", document.host, as: user).orThrow()
            try document.fixture.wait(until: "an overwritten line shows") { try isShown("OLD\nmore\n") }
            let save = "exec 3< \"$1\" 4< \"$2\"; echo saved > \"$3.new\"; mv \"$3.new\" \"$3\"; sleep 0.2; cat \"$1\" \"$2\""
            try Command.shell(save, document.file, document.held, document.host, as: user).orThrow()
            try document.fixture.wait(until: "a saved file shows") { try isShown("saved\n") }
        }

        @Test(
            "A file that the host saves by a rename is written immediately through its grant",
            arguments: ["shared", "exclusive", "none"], [true, false])
        func writtenAfterHostSave(cache: String, asRoot: Bool) throws {
            let user = asRoot ? Identity.current : Machine.plainUser
            guard let user, asRoot || Machine.usersCanMount else { return }
            let document = try GrantedDocument(MountFixture(owner: user), options: "cache=\(cache)")
            for round in 0..<5 {
                try Command.run(["cat", document.file], as: user).orThrow()
                try document.write("host\n", document.directory + "/new")
                chown(document.directory + "/new", user.uid, user.gid)
                try #require(rename(document.directory + "/new", document.host) == 0)
                try Command.run(["sh", "-c", "echo \(round) > \(document.file)"], as: user).orThrow()
                try document.fixture.wait(until: "the host has it") { GrantedDocument.text(document.host) == "\(round)\n" }
                #expect(try Command.run(["cat", document.file], as: user).orThrow().text == "\(round)\n")
            }
        }

        @Test("A file that was removed on the host is not written through its grant")
        func writtenAfterRemoval() throws {
            let document = try GrantedDocument(MountFixture())
            #expect(GrantedDocument.text(document.file) == "old\n")
            try FileManager.default.removeItem(atPath: document.host)
            try expectCall("open-for-writing", document.file, gives: "ENOENT")
        }

        @Test(
            "A document that was renamed on the host is listed again", arguments: ["shared", "exclusive", "none"], [true, false])
        func listedAfterRename(cache: String, asRoot: Bool) throws {
            let user = asRoot ? Identity.current : Machine.plainUser
            guard let user, asRoot || Machine.usersCanMount else { return }
            let document = try GrantedDocument(MountFixture(owner: user), options: "cache=\(cache)")
            func listed() throws -> String { try Command.run(["ls", document.mountpoint + "/docs"], as: user).orThrow().trimmed }
            #expect(try listed() == "report.txt")
            try #require(rename(document.host, document.directory + "/other.txt") == 0)
            // Under `exclusive` the kernel lists by itself until it is told of the change.
            if cache != "exclusive" { #expect(try listed().isEmpty) }
            try document.fixture.wait(until: "it is listed") { try listed() == "report.txt" }
        }

        @Test("A granted file keeps its name if an editor on the host makes a backup")
        func backedUpOnTheHost() throws {
            let document = try GrantedDocument(MountFixture())
            try #require(rename(document.host, document.host + "~") == 0)
            try document.write("new\n", document.host)
            try document.fixture.wait(until: "both forms show it") {
                GrantedDocument.text(document.file) == "new\n" && GrantedDocument.text(document.held) == "new\n"
            }
            #expect(try document.fixture.list().allSatisfy { $0.path == document.host })
        }

        enum Stranger: String, CaseIterable { case link, directory, fifo, hardLink, anothersFile }

        @Test(
            "A stranger in the place of a granted file is not shown unless confirmed",
            .enabled(if: Identity.isRoot, Comment(rawValue: Machine.needsRoot)),
            arguments: Stranger.allCases)
        func strangers(stranger: Stranger) throws {
            let document = try GrantedDocument(MountFixture())
            try FileManager.default.removeItem(atPath: document.host)
            switch stranger {
            case .link: try #require(symlink("secret", document.host) == 0)
            case .directory: try #require(mkdir(document.host, 0o755) == 0)
            case .fifo: try #require(mkfifo(document.host, 0o644) == 0)
            case .hardLink: try #require(link(document.directory + "/secret", document.host) == 0)
            case .anothersFile:
                // It never has the name as the owner's, who may replace the file.
                let made = document.directory + "/stranger"
                try document.write("stranger\n", made)
                try #require(chown(made, 65534, 65534) == 0 && rename(made, document.host) == 0)
            }
            try document.fixture.wait(until: "the names are gone") {
                try FileManager.default.contentsOfDirectory(atPath: document.mountpoint).isEmpty
            }
            #expect(GrantedDocument.text(document.file) == nil)
            #expect(GrantedDocument.text(document.held) == nil)
            #expect(try document.fixture.list().allSatisfy { $0.bookmark == "replaced" && $0.state == "unavailable" })
            if stranger == .anothersFile {
                try document.fixture.grantfs("repair", "file", "--confirm", document.host).orThrow()
                try document.fixture.wait(until: "what was confirmed is shown") { GrantedDocument.text(document.file) == "stranger\n" }
            }
        }

        @Test("A removed file is unavailable until it returns")
        func removed() throws {
            let document = try GrantedDocument(MountFixture())
            try FileManager.default.removeItem(atPath: document.host)
            try document.fixture.wait(until: "the names are gone") {
                try FileManager.default.contentsOfDirectory(atPath: document.mountpoint).isEmpty
            }
            #expect(try document.fixture.list().allSatisfy { $0.bookmark == "missing" && $0.state == "unavailable" })
            try expectCall("open", document.file, gives: "ENOENT")
            try document.write("again\n", document.host)
            try document.fixture.wait(until: "it is back") {
                GrantedDocument.text(document.file) == "again\n" && GrantedDocument.text(document.held) == "again\n"
            }
        }

        @Test("A grant of a device, socket or dangling link is refused")
        func badInput() throws {
            let fixture = try MountFixture()
            let source = try fixture.source("odd")
            try #require(mkfifo(source + "/fifo", 0o644) == 0)
            try #require(symlink("nowhere", source + "/dangling") == 0)
            let socket = try Child(
                [
                    "/usr/bin/python3", "-c",
                    "import socket,sys; s=socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); print('ready',flush=True); input()",
                    source + "/socket",
                ])
            try socket.expect("ready")
            for name in ["fifo", "socket", "dangling", "absent", "absent/below"] {
                let output = try fixture.grantfs("grant", source + "/" + name)
                #expect(output.status == 1 && output.errors.contains("cannot be granted"), "\(name): \(output)")
            }
            #expect(try fixture.grantfs("grant", "/dev/null").status == 1)
            #expect(try fixture.grantfs("grant", source, "--as-directory").status == 2)
            try "x".write(toFile: source + "/plain", atomically: false, encoding: .utf8)
            try #require(symlink("plain", source + "/link") == 0)
            try fixture.grant(source + "/link", name: "linked")
            #expect(try fixture.list().map(\.path) == [source + "/plain"], "a link is followed once, by whoever grants")
            #expect(try fixture.grantfs("list", "--json").orThrow().text.contains("document"))
            let again = try fixture.grantfs("grant", source + "/plain", "--name", "linked")
            #expect(again.status == 0 && again.errors.contains("already"), "\(again)")
            let otherForm = try fixture.grantfs("grant", source + "/plain", "--name", "linked", "--as-directory")
            #expect(otherForm.status == 1, "\(otherForm)")
        }

        @Test("A file granted beside its directory shows changes through both grants")
        func overlapping() throws {
            let fixture = try MountFixture()
            let document = try GrantedDocument(fixture)
            try fixture.grant(document.directory, name: "all")
            try document.fixture.wait(until: "the directory is shown") {
                FileManager.default.fileExists(atPath: document.mountpoint + "/all/report.txt")
            }
            try document.write("by the directory\n", document.mountpoint + "/all/report.txt")
            #expect(GrantedDocument.text(document.file) == "by the directory\n")
            #expect(GrantedDocument.text(document.held) == "by the directory\n")
            try fixture.revoke("all")
            #expect(GrantedDocument.text(document.held) == "by the directory\n")
            let revoked = try fixture.grantfs("revoke", "--path", document.host, "--json").orThrow()
            #expect(revoked.text.contains("file") && revoked.text.contains("docs"))
            #expect(GrantedDocument.text(document.file) == nil && GrantedDocument.text(document.held) == nil)
        }

        @Test("An exported grant of a file applies again and keeps its id")
        func declared() throws {
            let document = try GrantedDocument(MountFixture())
            let exported = try document.fixture.grantfs("export").orThrow().text
            #expect(exported.contains("asDirectory = true"))
            let file = document.fixture.base + "/grants.toml"
            try document.write(exported, file)
            let before = try document.fixture.list().map(\.id)
            try document.write("new\n", document.mountpoint + "/docs/t")
            try #require(rename(document.mountpoint + "/docs/t", document.held) == 0)
            try document.fixture.grantfs("apply", file).orThrow()
            #expect(try document.fixture.list().map(\.id) == before, "a document that was saved is the same")
            #expect(GrantedDocument.text(document.held) == "new\n")
        }

        @Test(
            "A user's file in a directory of root is written in place only",
            .enabled(if: Identity.isRoot && Machine.usersCanMount && Machine.plainUser != nil, Comment(rawValue: Machine.needsRoot)))
        func foreignDirectory() throws {
            let user = try #require(Machine.plainUser)
            let fixture = try MountFixture(owner: user)
            let directory = try fixture.source("roots")
            try #require(chown(directory, 0, 0) == 0)
            let file = directory + "/report.txt"
            try "old\n".write(toFile: file, atomically: false, encoding: .utf8)
            try #require(chown(file, user.uid, user.gid) == 0)
            try fixture.grantfs(["grant", file, "--name", "docs", "--as-directory"]).orThrow()
            let docs = try fixture.mount() + "/docs"
            let script =
                "ls \(docs); echo new > \(docs)/report.txt; touch \(docs)/t; mv \(docs)/report.txt \(docs)/b; rm \(docs)/report.txt"
            let output = try Command.run(["sh", "-c", script], as: user)
            #expect(output.lines == ["report.txt"], "\(output)")
            #expect(output.errors.split(separator: "\n").count == 3 && !output.errors.contains("No such"), "\(output)")
            #expect(GrantedDocument.text(file) == "new\n")
            #expect(try FileManager.default.contentsOfDirectory(atPath: directory) == ["report.txt"])
        }

        @Test(
            "A full filesystem keeps the old document",
            .enabled(if: Identity.isRoot, Comment(rawValue: Machine.needsRoot)))
        func fullFilesystem() throws {
            let fixture = try MountFixture()
            let volume = try fixture.directory("source/papers")
            try fixture.mountOther(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs"], at: volume)
            let document = try GrantedDocument(fixture)
            let script = """
                import os, sys, errno
                os.chdir(sys.argv[1])
                f = os.open("report.txt.new", os.O_CREAT | os.O_WRONLY, 0o644)
                try:
                    while True: os.write(f, b"n" * 4096)
                except OSError as e: print(errno.errorcode[e.errno])
                os.unlink("report.txt.new")
                """
            let output = try document.python(script, document.mountpoint + "/docs")
            #expect(output.lines == ["ENOSPC"], "\(output)")
            #expect(GrantedDocument.text(document.host) == "old\n" && GrantedDocument.text(document.held) == "old\n")
            let held = try #require(FileHandle(forReadingAtPath: document.held))
            try fixture.grantfs("release", "file", "docs").orThrow()
            let unmounted = try Command.run(["umount", volume])
            #expect(unmounted.status == 0, "\(unmounted)")
            #expect(throws: (any Error).self) { try held.readToEnd() }
        }

        @Test("A granted file is claimed under both of its names")
        func claimed() throws {
            let document = try GrantedDocument(MountFixture())
            for path in [document.file, document.held] {
                let read = try document.fixture.grantfs("coordinate", "read", path, "--", "cat", path)
                #expect(read.status == 0 && read.text == "old\n", "\(path): \(read)")
                let written = try document.fixture.grantfs("coordinate", "write", path, "--", "true")
                #expect(written.status == 0, "\(path): \(written)")
            }
        }

        @Test("A grant of a file expires and refuses open descriptors")
        func expires() throws {
            let document = try GrantedDocument(MountFixture(), options: nil, "--expires", "3s")
            let open = try #require(FileHandle(forReadingAtPath: document.held))
            try document.fixture.wait(until: "it has expired") { GrantedDocument.text(document.file) == nil }
            try document.fixture.wait(until: "what is open is refused") {
                (try? open.seek(toOffset: 0)) == nil || (try? open.read(upToCount: 1)) == nil
            }
            try expectCall("open", document.held, gives: "EACCES")
        }

        @Test("A mount with a granted file refuses an upgrade and survives a dead daemon")
        func otherDaemons() throws {
            let document = try GrantedDocument(MountFixture(), options: "recover")
            let upgraded = try document.fixture.grantfs("upgrade", document.mountpoint)
            #expect(upgraded.status != 0 && upgraded.errors.contains("single files"), "\(upgraded)")
            #expect(GrantedDocument.text(document.held) == "old\n")
            let open = try #require(FileHandle(forReadingAtPath: document.file))
            let pid = try document.fixture.daemon(at: document.mountpoint)
            kill(pid, SIGKILL)
            try document.fixture.wait(until: "another daemon shows it") {
                GrantedDocument.text(document.file) == "old\n" && GrantedDocument.text(document.held) == "old\n"
            }
            #expect(try FileManager.default.contentsOfDirectory(atPath: document.mountpoint + "/docs") == ["report.txt"])
            #expect(throws: (any Error).self) { try open.readToEnd() }
        }
    }
}
