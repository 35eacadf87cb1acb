import Foundation
import Glibc
import TestSupport
import Testing

extension MountTests {
    @Suite struct SavingADocument {
        /// The system calls of programs that save, as strace shows them, each step a line of
        /// Python. `D` is the document, `w` writes a new one to a name.
        enum Way: String, CaseIterable {
            case gSetContents, gReplaceWithBackup, qSaveFile, vim, emacs, libreOffice, sedInPlace

            var steps: [String] {
                switch self {
                case .gSetContents: ["f=w(D+'.X1Y2Z3')", "os.fsync(f)", "os.close(f)", "os.rename(D+'.X1Y2Z3',D)"]
                case .gReplaceWithBackup:
                    ["f=w('.goutputstream-AB')", "os.close(f)", "os.link(D,D+'~')", "os.rename('.goutputstream-AB',D)"]
                case .qSaveFile:
                    ["f=w(D+'.kJhGfD')", "os.fdatasync(f)", "os.close(f)", "os.chmod(D+'.kJhGfD',0o644)", "os.rename(D+'.kJhGfD',D)"]
                case .vim:
                    [
                        "os.close(os.open('4913',os.O_CREAT|os.O_EXCL|os.O_WRONLY,0o644))", "os.unlink('4913')", "os.rename(D,D+'~')",
                        "f=w(D)", "os.fsync(f)", "os.close(f)", "os.chmod(D,0o644)", "os.unlink(D+'~')",
                    ]
                case .emacs:
                    [
                        "os.symlink('user@host.1:2','.#'+D)", "os.rename(D,D+'~')", "f=w(D)", "os.fsync(f)", "os.close(f)",
                        "os.unlink('.#'+D)",
                    ]
                case .libreOffice:
                    [
                        "os.close(os.open('.~lock.'+D+'#',os.O_CREAT|os.O_EXCL|os.O_RDWR,0o644))", "f=w('lu123.tmp')", "os.close(f)",
                        "os.rename('lu123.tmp',D)", "os.unlink('.~lock.'+D+'#')",
                    ]
                case .sedInPlace: ["f=w('sedA1B2C3')", "os.fchmod(f,0o644)", "os.close(f)", "os.rename('sedA1B2C3',D)"]
                }
            }

            /// What it leaves beside the document when all goes well.
            var left: [String] { [.gReplaceWithBackup, .emacs].contains(self) ? ["report.txt~"] : [] }
        }

        private static let frame = """
            import os, sys, signal
            os.chdir(sys.argv[1]); D = 'report.txt'
            def w(name):
                f = os.open(name, os.O_CREAT|os.O_WRONLY|os.O_TRUNC|(os.O_EXCL if name != D else 0), 0o644)
                os.write(f, b'n'*70000)
                if len(sys.argv) > 3: os.kill(os.getpid(), signal.SIGKILL)
                os.write(f, b'n'*70000)
                return f
            steps = sys.argv[2].split(';')
            for step in steps: exec(step)
            """
        private static let new = String(repeating: "n", count: 140_000)

        private func save(_ document: GrantedDocument, _ steps: [String], diesWriting: Bool = false) throws -> Output {
            let kill = "os.kill(os.getpid(),signal.SIGKILL)"
            return try Command.run(
                ["/usr/bin/python3", "-c", Self.frame, document.mountpoint + "/docs", (steps + [kill]).joined(separator: ";")]
                    + (diesWriting ? ["dies"] : []), as: document.fixture.owner)
        }

        @Test(
            "Every way to save a document works in every cache mode",
            arguments: ["shared", "exclusive", "none"])
        func works(cache: String) throws {
            let document = try GrantedDocument(MountFixture(), options: "cache=\(cache)")
            for way in Way.allCases {
                try document.write("old\n", document.held)
                #expect(GrantedDocument.text(document.host) == "old\n", "\(way)")
                let output = try save(document, way.steps)
                #expect(output.status == -SIGKILL, "\(way): \(output)")
                #expect(GrantedDocument.text(document.host) == Self.new, "\(way)")
                #expect(GrantedDocument.text(document.held) == Self.new, "\(way)")
                let listed = try FileManager.default.contentsOfDirectory(atPath: document.mountpoint + "/docs").sorted()
                #expect(listed == ["report.txt"] + way.left, "\(way)")
                for name in way.left {
                    #expect(GrantedDocument.text(document.mountpoint + "/docs/" + name) == "old\n", "\(way)")
                    #expect(unlink(document.mountpoint + "/docs/" + name) == 0)
                }
                #expect(try FileManager.default.contentsOfDirectory(atPath: document.directory).count == 3, "\(way)")
                try document.fixture.wait(until: "the other form shows it") { GrantedDocument.text(document.file) == Self.new }
            }
            try document.fixture.wait(until: "the log says so") {
                try document.fixture.grantfs("log").orThrow().text.contains("saved through the grant")
            }
            try document.fixture.grantfs("unmount", document.mountpoint).orThrow()
            try document.fixture.mount()
            #expect(GrantedDocument.text(document.held) == Self.new, "the next mount finds the file that it was saved as")
        }

        @Test("A save ended at any step leaves the old or the new document", arguments: Way.allCases)
        func crashes(way: Way) throws {
            for last in 0..<way.steps.count {
                for dies in [false, true] where !dies || way.steps[last].hasPrefix("f=w(") {
                    let document = try GrantedDocument(MountFixture())
                    _ = try save(document, Array(way.steps[...last]), diesWriting: dies)
                    let text = GrantedDocument.text(document.host)
                    if dies, way == .vim || way == .emacs {
                        try document.fixture.wait(until: "the old one is shown again") { GrantedDocument.text(document.held) == "old\n" }
                    }
                    #expect(text == "old\n" || text == Self.new, "\(way.steps[last]): \(text?.prefix(20) ?? "none") of \(text?.count ?? 0)")
                    try document.fixture.grantfs("unmount", document.mountpoint).orThrow()
                    let now = GrantedDocument.text(document.host)
                    #expect(now == text, "\(way.steps[last])")
                    try document.fixture.wait(until: "nothing else is left") { document.workplaces.isEmpty }
                    try document.fixture.mount()
                    #expect(GrantedDocument.text(document.held) == text, "\(way.steps[last])")
                    document.fixture.finish()
                }
            }
        }

        @Test("An exclusive create fails while another program's new document takes its place")
        func twoPrograms() throws {
            let script = """
                import os, sys, threading
                D = 'report.txt'
                os.chdir(sys.argv[1])
                made = 0
                def spin():
                    global made
                    start.wait()
                    while not closed.is_set():
                        try: os.close(os.open(D, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)); made += 1
                        except FileExistsError: pass
                for i in range(500):
                    os.rename(D, D + '~')
                    f = os.open(D, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
                    os.write(f, b'%d' % i)
                    start, closed = threading.Barrier(2), threading.Event()
                    other = threading.Thread(target=spin)
                    other.start()
                    start.wait()
                    os.close(f)
                    closed.set()
                    other.join()
                print(made)
                """
            let document = try GrantedDocument(MountFixture())
            let output = try document.python(script, document.mountpoint + "/docs")
            #expect(output.lines == ["0"], "\(output)")
            #expect(GrantedDocument.text(document.host) == "499")
        }

        @Test("A new document that is replaced before its close has no name afterwards")
        func replacedBeforeItsClose() throws {
            let document = try GrantedDocument(MountFixture())
            let steps = ["os.rename(D,D+'~')", "f=w(D)", "os.close(w('other'))", "os.rename('other',D)", "os.close(f)", "os.unlink(D+'~')"]
            _ = try save(document, steps)
            _ = try save(document, steps)
            #expect(GrantedDocument.text(document.host) == Self.new)
            #expect(try FileManager.default.contentsOfDirectory(atPath: document.mountpoint + "/docs") == ["report.txt"])
        }

        @Test("GLib and vim can save a document", .enabled(if: Machine.offers("vim"), Comment(rawValue: Machine.needs("vim"))))
        func realPrograms() throws {
            let document = try GrantedDocument(MountFixture())
            for mode in ["no", "yes", "auto"] {
                try document.write("old\n", document.held)
                let output = try Command.run(
                    [
                        "vim", "-Nu", "NONE", "-es", "-c", "set backupskip= backupcopy=\(mode)", "-c", "normal Ovim \(mode)", "-c", "wq",
                        document.held,
                    ],
                    as: document.fixture.owner)
                #expect(output.status == 0, "\(output)")
                #expect(GrantedDocument.text(document.host) == "vim \(mode)\nold\n", "\(mode)")
            }
            let glib = """
                import sys
                try:
                    from gi.repository import Gio, GLib
                except ImportError:
                    sys.exit(77)
                GLib.file_set_contents(sys.argv[1], b'set\\n')
                file = Gio.File.new_for_path(sys.argv[1])
                file.replace_contents(b'replaced\\n', None, True, Gio.FileCreateFlags.NONE, None)
                """
            let output = try document.python(glib, document.held)
            if output.status == 77 { return }
            #expect(output.status == 0, "\(output)")
            #expect(GrantedDocument.text(document.host) == "replaced\n")
            #expect(GrantedDocument.text(document.held + "~") == "set\n")
        }

        @Test("Only a regular file can replace a document")
        func irregular() throws {
            let document = try GrantedDocument(MountFixture())
            let docs = document.mountpoint + "/docs"
            try #require(symlink("/etc/passwd", docs + "/link") == 0)
            try #require(mkfifo(docs + "/fifo", 0o644) == 0)
            for name in ["link", "fifo"] {
                #expect(rename(docs + "/" + name, document.held) != 0, "\(name)")
                #expect(FileManager.default.fileExists(atPath: docs + "/" + name) || name == "link")
            }
            #expect(symlink("secret", document.held) != 0)
            #expect(unlink(document.held) == 0, "the document itself can be removed")
            #expect(symlink("secret", document.held) != 0 && mkdir(document.held, 0o755) != 0 && mkfifo(document.held, 0o644) != 0)
            #expect(link(docs + "/fifo", document.held) != 0)
            #expect(try FileManager.default.contentsOfDirectory(atPath: document.directory).contains("report.txt") == false)
            #expect(GrantedDocument.text(document.directory + "/secret") == "secret\n")
        }

        @Test("The directory of a document refuses reserved names and a new mode")
        func confined() throws {
            let document = try GrantedDocument(MountFixture())
            let docs = document.mountpoint + "/docs"
            #expect(open(docs + "/.grantfs-x", O_CREAT | O_WRONLY, 0o644) < 0 && errno == EACCES)
            #expect(mkdir(docs + "/.grantfs-x", 0o755) != 0 && errno == EACCES)
            #expect(chmod(docs, 0o777) != 0 && errno == EACCES)
            let place = try #require(document.workplaces.first)
            var status = stat()
            try #require(stat(document.directory + "/" + place, &status) == 0)
            #expect(status.st_mode & 0o7777 == 0o700 && status.st_uid == document.fixture.owner.uid)
            #expect(link(document.held, document.file + "2") != 0)
            #expect(rename(document.held, document.file) != 0 && errno == EACCES)
            #expect(link(document.held, docs + "/second") == 0)
            #expect(!FileManager.default.fileExists(atPath: document.directory + "/second"), "no other name on the host")
        }

        @Test("Files of a program that has ended stay beside the document while the mount lasts")
        func leftovers() throws {
            let fixture = try MountFixture()
            fixture.switches["GRANTFS_TEST_LEFTOVER_SECONDS"] = "1"
            let document = try GrantedDocument(fixture)
            let docs = document.mountpoint + "/docs"
            try Command.run(["sh", "-c", "echo x > \(docs)/left.tmp"]).orThrow()
            // By then the daemon has inspected the document's place several times.
            let other = document.directory + "/moved.txt"
            try FileManager.default.moveItem(atPath: document.host, toPath: other)
            try fixture.wait(until: "the document is followed") { try fixture.list().allSatisfy { $0.path == other } }
            #expect(GrantedDocument.text(docs + "/left.tmp") == "x\n")
        }

        @Test("A document moved away by a program that dies is shown again")
        func comesBack() throws {
            let fixture = try MountFixture()
            fixture.switches["GRANTFS_TEST_LEFTOVER_SECONDS"] = "1"
            let document = try GrantedDocument(fixture)
            _ = try save(document, ["os.rename(D,D+'~')"])
            #expect(GrantedDocument.text(document.host) == "old\n")
            try fixture.wait(until: "it is shown again") { GrantedDocument.text(document.held) == "old\n" }
        }

        @Test("The next daemon removes the leftovers of a killed daemon only")
        func killedDaemon() throws {
            let document = try GrantedDocument(MountFixture())
            try document.write("t\n", document.mountpoint + "/docs/t")
            let place = try #require(document.workplaces.first)
            try document.fixture.killDaemon(at: document.mountpoint)
            #expect(document.workplaces == [place])
            try document.fixture.mount()
            try document.fixture.wait(until: "it is gone") { !document.workplaces.contains(place) }
            #expect(GrantedDocument.text(document.host) == "old\n" && GrantedDocument.text(document.held) == "old\n")
            // A user puts another directory in the place of the next one.
            let second = try #require(document.workplaces.first)
            try document.fixture.killDaemon(at: document.mountpoint)
            try FileManager.default.removeItem(atPath: document.directory + "/" + second)
            let own = document.directory + "/" + second
            try #require(mkdir(own, 0o755) == 0)
            try document.write("precious\n", own + "/file")
            try document.fixture.mount()
            #expect(GrantedDocument.text(document.held) == "old\n")
            pause(milliseconds: 300)
            #expect(GrantedDocument.text(own + "/file") == "precious\n")
        }

        @Test(
            "A save has the rights of its caller on the host",
            .enabled(if: Machine.plainUser != nil && Identity.isRoot, Comment(rawValue: Machine.needsRoot)))
        func rights() throws {
            let fixture = try MountFixture()
            let user = try #require(Machine.plainUser)
            let directory = try fixture.source("roots")
            try "old\n".write(toFile: directory + "/report.txt", atomically: false, encoding: .utf8)
            // The file is the user's, its directory root's.
            try #require(chown(directory + "/report.txt", user.uid, user.gid) == 0)
            try fixture.grantfs("grant", directory + "/report.txt", "--name", "docs", "--as-directory").orThrow()
            let mountpoint = try fixture.mount(options: "allow_other")
            let script = """
                import os, sys
                os.chdir(sys.argv[1])
                def tried(what):
                    try: what(); return "OK"
                    except OSError as e: return os.strerror(e.errno)
                open("t", "w").close()
                print(tried(lambda: os.rename("t", "report.txt")), tried(lambda: os.unlink("report.txt")), tried(lambda: os.rename("report.txt", "b")))
                print(tried(lambda: open("report.txt", "w").write("in place\\n")))
                """
            let output = try Command.run(["/usr/bin/python3", "-c", script, mountpoint + "/docs"], as: user)
            #expect(output.lines == ["Permission denied Permission denied Permission denied", "OK"], "\(output)")
            #expect(GrantedDocument.text(directory + "/report.txt") == "in place\n")
        }
    }
}
