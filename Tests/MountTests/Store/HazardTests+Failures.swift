import Foundation
import Glibc
import TestSupport
import Testing

extension MountTests.Hazards {
    @Test("An error of the source reaches the caller at the native call", arguments: ["shared", "none"])
    func failingSource(cache: String) throws {
        let fixture = try MountFixture()
        let source = try HangingSource("failing", in: fixture)
        defer {
            source.end()
            fixture.finish()
        }
        try source.file("file", size: 100_000)
        try fixture.grant(source.directory)
        let mount = try fixture.mount(options: "cache=\(cache)") + "/failing"
        let calls = """
            import errno, os, sys
            os.chdir(sys.argv[1])
            def said(name, call):
                try: call(); print(name, 'OK')
                except OSError as e: print(name, errno.errorcode[e.errno])
            fd = os.open('file', os.O_RDWR)
            print('ready', flush=True); sys.stdin.readline()
            said('read', lambda: os.pread(fd, 10, 50000))
            said('write', lambda: os.pwrite(fd, b'x', 10))
            said('fsync', lambda: os.fsync(fd))
            said('ftruncate', lambda: os.ftruncate(fd, 10))
            said('create', lambda: os.open('new', os.O_CREAT | os.O_WRONLY))
            said('mkdir', lambda: os.mkdir('d'))
            said('rename', lambda: os.rename('file', 'other'))
            said('unlink', lambda: os.unlink('file'))
            said('close', lambda: os.close(fd))
            """
        let errors: [String: Int32] = [
            "read": EIO, "write": EDQUOT, "fsync": EIO, "truncate": EFBIG, "create": ENOSPC, "mkdir": EDQUOT, "rename": ENOSPC,
            "unlink": EIO,
            "flush": EDQUOT,
        ]
        var said: [[String]] = []
        for place in [source.directory, mount] {
            source.goOn()
            let child = try Child(["python3", "-c", calls, place])
            try child.expect("ready")
            try source.fail(errors)
            child.send("go")
            said.append((0..<9).compactMap { _ in child.line() })
        }
        let wanted = [
            "read EIO", "write EDQUOT", "fsync EIO", "ftruncate EFBIG", "create ENOSPC", "mkdir EDQUOT", "rename ENOSPC", "unlink EIO",
            "close EDQUOT",
        ]
        #expect(said[0] == wanted, "the source itself")
        #expect(said[1] == wanted)
    }

    @Test(
        "Sources on other filesystems are granted, used and withdrawn",
        .enabled(if: Identity.isRoot, Comment(rawValue: Machine.needsRoot)),
        arguments: ["tmpfs", "overlay", "bindfs", "read-only"])
    func kinds(kind: String) throws {
        let fixture = try MountFixture()
        let source = try fixture.source("other")
        let behind = try fixture.directory("outside/lower")
        try Data("text\n".utf8).write(to: URL(fileURLWithPath: behind + "/file"))
        switch kind {
        case "tmpfs": try fixture.mountOther(["mount", "-t", "tmpfs", "none"], at: source)
        case "overlay":
            // Its upper directory cannot lie on an overlay itself.
            let upper = try fixture.directory("outside/upper")
            try fixture.mountOther(["mount", "-t", "tmpfs", "none"], at: upper)
            for name in ["upper", "work"] { mkdir(upper + "/" + name, 0o755) }
            let options = "lowerdir=\(behind),upperdir=\(upper)/upper,workdir=\(upper)/work"
            try fixture.mountOther(["mount", "-t", "overlay", "none", "-o", options], at: source)
        case "bindfs": try fixture.mountOther(["bindfs", behind], at: source)
        default: try fixture.mountOther(["mount", "--bind", "-o", "ro", behind], at: source)
        }
        try fixture.grant(source)
        let mount = try fixture.mount() + "/other"
        if kind == "read-only" {
            try expectCall("mkdir", mount + "/d", gives: "EROFS")
            #expect(try Command.run(["cat", mount + "/file"]).text == "text\n")
        } else {
            let script =
                "cd \"$1\"; mkdir d; printf 'more\\n' >> file; ln file d/hard; mv d/hard d/moved; cat d/moved; ls -i file d/moved | sort -u | wc -l"
            #expect(
                try Command.shell(script, mount).orThrow().lines.suffix(2)
                    == Command.shell("cat \"$1/d/moved\" | tail -n 1; echo 2", source).lines.suffix(2))
        }
        #expect(try fixture.revoke("other").allSatisfy(\.isConfirmed))
        try expectCall("stat", mount + "/file", gives: "EACCES")
        fixture.finish()
    }
}
