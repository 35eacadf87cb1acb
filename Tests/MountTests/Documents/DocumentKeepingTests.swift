import Foundation
import Glibc
import TestSupport
import Testing

extension GrantedDocument {
    /// The directories on the host in which files were kept.
    var kept: [String] {
        ((try? FileManager.default.contentsOfDirectory(atPath: directory)) ?? []).filter { $0.hasPrefix("report.txt.kept-") }
            .map { directory + "/" + $0 }
    }

    /// Whether any file on the host, at the document's place or kept, has this content.
    func isOnTheHost(_ text: String) -> Bool {
        let files = FileManager.default.enumerator(atPath: directory)?.compactMap { $0 as? String } ?? []
        return files.contains { Self.text(directory + "/" + $0) == text }
    }
}

extension MountTests {
    @Suite struct FilesBesideADocument {
        enum End: String, CaseIterable { case revoke, unmount }

        private func end(_ way: End, _ document: GrantedDocument) throws -> Output {
            try document.fixture.grantfs(way == .revoke ? ["revoke", "docs"] : ["unmount", document.mountpoint]).orThrow()
        }

        @Test("Files beside a document are kept for its owner at a reported place", arguments: End.allCases, ["shared", "exclusive"])
        func kept(way: End, cache: String) throws {
            let document = try GrantedDocument(MountFixture(), options: "cache=\(cache)")
            let docs = document.mountpoint + "/docs"
            try document.write("saved as\n", docs + "/other.txt")
            try Command.run(["git", "init", "-q", docs + "/repository"], as: document.fixture.owner).orThrow()
            let output = try end(way, document)
            let place = try #require(document.kept.first)
            #expect(output.errors.contains("what programs made beside “docs” is kept in \(place)"), "\(output)")
            #expect(GrantedDocument.text(place + "/other.txt") == "saved as\n")
            #expect(GrantedDocument.text(place + "/repository/.git/HEAD") != nil)
            var status = stat()
            try #require(stat(place, &status) == 0)
            #expect(status.st_mode & 0o7777 == 0o700 && status.st_uid == document.fixture.owner.uid)
            #expect(try document.fixture.grantfs("log").orThrow().text.contains(place))
            #expect(document.workplaces.isEmpty && document.kept.count == 1)
            #expect(GrantedDocument.text(document.host) == "old\n")
        }

        @Test("Files without content beside a document leave nothing on the host", arguments: End.allCases)
        func withoutContent(way: End) throws {
            let document = try GrantedDocument(MountFixture())
            let docs = document.mountpoint + "/docs"
            try document.write("", docs + "/lock")
            try #require(mkdir(docs + "/empty", 0o755) == 0 && symlink("nowhere", docs + "/link") == 0)
            try #require(link(document.held, docs + "/report.txt~") == 0)
            let output = try end(way, document)
            #expect(!output.errors.contains("is kept in"), "\(output)")
            #expect(try FileManager.default.contentsOfDirectory(atPath: document.directory).sorted() == ["report.txt", "secret"])
        }

        @Test("An fsynced document survives a revocation at each step of a save", arguments: SavingADocument.Way.allCases)
        func fsynced(way: SavingADocument.Way) throws {
            let frame = """
                import os, sys
                os.chdir(sys.argv[1]); D = 'report.txt'
                def w(name):
                    f = os.open(name, os.O_CREAT|os.O_WRONLY|os.O_TRUNC|(os.O_EXCL if name != D else 0), 0o644)
                    os.write(f, b'new\\n'); os.fsync(f); d = os.open('.', os.O_RDONLY); os.fsync(d)
                    return f
                for step in sys.argv[2].split(';'): exec(step)
                print('ready', flush=True); sys.stdin.readline()
                """
            let first = try #require(way.steps.firstIndex { $0.hasPrefix("f=w(") })
            for last in first..<way.steps.count {
                let document = try GrantedDocument(MountFixture())
                let steps = way.steps[...last].joined(separator: ";")
                let holder = try Child(
                    ["/usr/bin/python3", "-c", frame, document.mountpoint + "/docs", steps], identity: document.fixture.owner)
                try holder.expect("ready", within: 60)
                #expect(try document.fixture.revoke("docs")[0].isConfirmed)
                try document.fixture.wait(until: "the workplace has ended") { document.workplaces.isEmpty }
                #expect(document.isOnTheHost("new\n"), "\(way): \(way.steps[last])")
                #expect(["old\n", "new\n"].contains(GrantedDocument.text(document.host)), "\(way): \(way.steps[last])")
                holder.send("end")
                document.fixture.finish()
            }
        }

        @Test("Files beside a document are kept by the next daemon after a kill")
        func killedDaemon() throws {
            let document = try GrantedDocument(MountFixture())
            try document.write("saved as\n", document.mountpoint + "/docs/other.txt")
            try document.fixture.killDaemon(at: document.mountpoint)
            try document.fixture.mount()
            try document.fixture.wait(until: "they are kept") { !document.kept.isEmpty }
            #expect(GrantedDocument.text(document.kept[0] + "/other.txt") == "saved as\n")
            try document.fixture.wait(until: "the log names them") {
                try document.fixture.grantfs("log").orThrow().text.contains(document.kept[0])
            }
        }

        @Test("A workplace without a store ends when a document beside it is shown")
        func withoutStore() throws {
            let document = try GrantedDocument(MountFixture())
            try document.write("saved as\n", document.mountpoint + "/docs/other.txt")
            try document.fixture.killDaemon(at: document.mountpoint)
            let detach = Identity.isRoot ? ["umount", "-l"] : ["fusermount3", "-uz"]
            try Command.run(detach + [document.mountpoint]).orThrow()
            try FileManager.default.removeItem(atPath: document.fixture.store)
            try document.fixture.grantfs("grant", document.host, "--name", "docs", "--as-directory").orThrow()
            try document.fixture.mount()
            try document.fixture.wait(until: "one workplace is left") { document.workplaces.count == 1 }
            let other = try #require(
                FileManager.default.contentsOfDirectory(atPath: document.directory).first { $0.hasPrefix("document.kept-") })
            #expect(GrantedDocument.text(document.directory + "/" + other + "/other.txt") == "saved as\n")
            // Another mount's is in use, and stays.
            let second = try document.fixture.mount(at: "second")
            try document.write("beside\n", document.mountpoint + "/docs/beside.txt")
            #expect(GrantedDocument.text(second + "/docs/report.txt") == "old\n")
            #expect(document.workplaces.count == 2)
            #expect(GrantedDocument.text(document.mountpoint + "/docs/beside.txt") == "beside\n")
        }

        @Test("A new document whose writer was killed is kept beside the next one")
        func unfinished() throws {
            let document = try GrantedDocument(MountFixture())
            let docs = document.mountpoint + "/docs"
            let script = """
                import os, signal, sys
                os.chdir(sys.argv[1]); os.rename('report.txt', 'report.txt~')
                f = os.open('report.txt', os.O_CREAT|os.O_EXCL|os.O_WRONLY, 0o644); os.write(f, b'half'); os.fsync(f)
                os.kill(os.getpid(), signal.SIGKILL)
                """
            _ = try document.python(script, docs)
            try document.fixture.wait(until: "the old one is shown again") { GrantedDocument.text(document.held) == "old\n" }
            try #require(rename(document.held, docs + "/report.old") == 0)
            try document.write("next\n", document.held)
            #expect(GrantedDocument.text(document.host) == "next\n")
            let names = try FileManager.default.contentsOfDirectory(atPath: docs)
            let unfinished = try #require(names.first { $0.hasPrefix("report.txt.unfinished-") }, "\(names)")
            #expect(GrantedDocument.text(docs + "/" + unfinished) == "half")
        }

        @Test("A daemon keeps no memory for files removed beside a document")
        func memory() throws {
            let document = try GrantedDocument(MountFixture())
            let daemon = try document.fixture.daemon(at: document.mountpoint)
            let script = """
                import os, sys
                os.chdir(sys.argv[1])
                for i in range(int(sys.argv[2])): os.close(os.open('k%d' % i, os.O_CREAT|os.O_WRONLY, 0o600))
                for i in range(int(sys.argv[3])):
                    os.close(os.open('t', os.O_CREAT|os.O_EXCL|os.O_WRONLY, 0o600)); os.unlink('t')
                """
            try document.python(script, document.mountpoint + "/docs", "10001", "2000").orThrow()
            let count = 10_000
            // The smallest entry that names a file takes more, in every round. A new thread of the daemon takes as much, once.
            let isKept = try (0..<4).allSatisfy { _ in
                let before = Processes.anonymousKilobytes(daemon)
                try document.python(script, document.mountpoint + "/docs", "0", "\(count)").orThrow()
                return Processes.anonymousKilobytes(daemon) - before >= count / 20
            }
            #expect(!isKept)
        }
    }
}
