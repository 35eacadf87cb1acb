import Foundation
import Glibc
import TestSupport
import Testing

// Grants of one file that are withdrawn or narrowed.
extension MountTests.AGrantOfAFile {
    @Test("A revoked file is refused in every row of the access table", arguments: ["shared", "exclusive"])
    func revoked(cache: String) throws {
        let document = try GrantedDocument(MountFixture(), options: "cache=\(cache)")
        let owner = document.fixture.owner
        // The probe's own files lie beside the document, as a program's do.
        let directory = document.mountpoint + "/docs/work"
        try #require(mkdir(directory, 0o755) == 0)
        try Probe.prepare(directory, for: owner)
        let probe = try Probe(below: directory)
        let open = try #require(FileHandle(forUpdatingAtPath: document.file))
        let native = try Probe.native(in: try document.fixture.directory("native"))
        ProbedMount.expectNative(try probe.attempt(), native, "before")
        try Probe.prepare(directory, for: owner)
        let again = try Probe(below: directory)
        #expect(try document.fixture.revoke("docs")[0].isConfirmed)
        ProbedMount.expectRefused(try again.attempt(), native, "after", cache: cache)
        #expect(try open.readToEnd() == Data("old\n".utf8), "the other grant was never interrupted")
        #expect(try document.fixture.revoke("file")[0].isConfirmed)
        #expect(throws: (any Error).self) { try open.write(contentsOf: Data("x".utf8)) }
        try expectCall("open", document.file, gives: "EACCES")
        try expectCall("open", document.held, gives: "EACCES")
        try document.fixture.wait(until: "nothing of it is left on the host") { document.workplaces.isEmpty }
        #expect(GrantedDocument.text(document.host) == "old\n")
        try document.fixture.restore("file", "docs")
        #expect(GrantedDocument.text(document.file) == "old\n")
        #expect(GrantedDocument.text(document.held) == "old\n")
    }

    @Test("A revocation reaches the mapping, the descriptor and the directory of a file")
    func heldDocument() throws {
        let document = try GrantedDocument(MountFixture())
        let script = """
            import mmap, os, sys, signal
            os.chdir(sys.argv[1])
            f = os.open("report.txt", os.O_RDWR)
            m = mmap.mmap(f, 4)
            pid = os.fork()
            print("ready", flush=True)
            sys.stdin.readline()
            def tried(what):
                try: what(); return "OK"
                except OSError as e: return os.strerror(e.errno)
            print(tried(lambda: os.pread(f, 4, 0)), tried(lambda: os.listdir(".")), tried(lambda: os.stat("report.txt")), flush=True)
            if os.fork() == 0: m[0]
            print(os.WTERMSIG(os.wait()[1]) == signal.SIGBUS, tried(lambda: os.close(f)), flush=True)
            """.replacingOccurrences(of: "pid = os.fork()\n", with: "")
        let holder = try Child(["/usr/bin/python3", "-c", script, document.mountpoint + "/docs"], separateErrors: true)
        try holder.expect("ready", within: 60)
        #expect(try document.fixture.revoke("docs")[0].isConfirmed)
        holder.send("go on")
        try holder.expect("Permission denied Permission denied Permission denied")
        try holder.expect("True OK")
    }

    @Test("A file granted for reading refuses changes with EROFS")
    func readOnly() throws {
        let document = try GrantedDocument(MountFixture(), options: nil, "--read-only")
        #expect(GrantedDocument.text(document.held) == "old\n")
        for path in [document.file, document.held] { try expectCall("open-for-writing", path, gives: "EROFS") }
        #expect(mkdir(document.mountpoint + "/docs/x", 0o755) != 0 && errno == EROFS)
        #expect(rename(document.held, document.held + "~") != 0 && errno == EROFS)
        for name in ["file", "docs"] { try document.fixture.grantfs("set", name, "--access", "read-write").orThrow() }
        try document.write("new\n", document.mountpoint + "/docs/t")
        try #require(rename(document.mountpoint + "/docs/t", document.held) == 0)
        let handle = try #require(FileHandle(forUpdatingAtPath: document.held))
        try document.fixture.grantfs("set", "docs", "--access", "read-only").orThrow()
        #expect(throws: (any Error).self) { try handle.write(contentsOf: Data("x".utf8)) }
        #expect(GrantedDocument.text(document.host) == "new\n")
    }
}
