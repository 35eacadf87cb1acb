import Foundation
import TestSupport
import Testing

extension MountTests {
    /// A withdrawal under `cache=exclusive` of a grant of which thousands of files are known, hardly any of them in use.
    @Suite(.enabled(if: Command.exists("python3"), Comment(rawValue: Machine.needs("python3")))) struct PruningTests {
        private static let holder = """
            import errno, mmap, os, sys, threading
            place = sys.argv[1]
            def name(number): return f'{place}/d{number % 20}/{number}'
            files = [os.open(name(n), os.O_RDWR) for n in range(0, 3000, 150)]
            for file in files[10:]: os.pread(file, 10, 0)
            gone = os.open(name(7), os.O_RDWR); os.unlink(name(7))
            only = os.open(name(11), os.O_PATH)
            mapped = os.open(name(13), os.O_RDWR)
            memory = mmap.mmap(mapped, 4); os.close(mapped); memory[0]
            written = os.open(name(17), os.O_RDWR); os.write(written, b'acknowledged')
            stored = os.open(name(19), os.O_RDWR); pages = mmap.mmap(stored, 4); os.close(stored); pages[0:4] = b'mmap'
            listing = os.open(f'{place}/d3', os.O_RDONLY); os.listdir(listing)
            os.chdir(f'{place}/d5')
            print('held', flush=True)
            input()
            def said(call):
                try: call()
                except OSError as error: return errno.errorcode[error.errno]
                return 'done'
            def all_of(file):
                yield from (said(lambda: os.pread(file, 10, place)) for place in (0, 4, 5000, 1 << 40))
                yield said(lambda: os.fstat(file))
                yield said(lambda: os.write(file, b'x'))
            seen = {answer for file in files + [gone, written] for answer in all_of(file)}
            seen |= {said(lambda: os.stat('.')), said(lambda: os.listdir('.')), said(lambda: os.fstat(only)), said(lambda: os.listdir(listing))}
            seen |= {said(lambda: open(name(n))) for n in range(3000)}
            print(*sorted(seen), flush=True)
            child = os.fork()
            if child == 0: memory[0]; os._exit(0)
            print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
            """

        @Test(
            "A revocation invalidates unused inodes and refuses all held ones",
            arguments: [true, false])
        func manyFiles(prunes: Bool) throws {
            let fixture = try MountFixture()
            let source = try fixture.source("a")
            for directory in 0..<20 {
                try FileManager.default.createDirectory(atPath: "\(source)/d\(directory)", withIntermediateDirectories: true)
            }
            for number in 0..<3000 { try Data("file".utf8).write(to: URL(fileURLWithPath: "\(source)/d\(number % 20)/\(number)")) }
            try fixture.grant(source)
            if !prunes { fixture.switches = ["GRANTFS_TEST_NO_PRUNING": "1"] }
            let mount = try fixture.mount(options: "cache=exclusive") + "/a"
            for _ in 0..<3 {
                let holder = try KernelCaches.kept {
                    try Command.shell("grep -r nothing \"$1\" || true", mount).orThrow()
                    #expect(try fixture.status().mounts[0].inodes > 3000)
                    try Data("file".utf8).write(to: URL(fileURLWithPath: source + "/d7/7"))
                    let holder = try Child(["python3", "-I", "-c", Self.holder, mount])
                    try holder.expect("held", within: 60)
                    let outcome = try fixture.revoke("a")[0].mounts[0]
                    #expect(outcome.confirmed)
                    #expect(outcome.invalidatedInodes > 3000)
                    let known = try fixture.status().mounts[0].inodes
                    if Machine.kernel >= (6, 18) { #expect(prunes ? known < 200 : known > 3000, "\(known) inodes") }
                    return holder
                }
                #expect(try String(contentsOfFile: source + "/d17/17", encoding: .utf8) == "acknowledged")
                #expect(try String(contentsOfFile: source + "/d19/19", encoding: .utf8) == "mmap")
                holder.send("go")
                let said = try #require(holder.line(within: 60))
                #expect(said == "EACCES" || Machine.losesErrorsOfReads && said == "EACCES EIO")
                // SIGBUS
                #expect(holder.line(within: 60) == "-7")
                try fixture.restore("a")
                try Data("file".utf8).write(to: URL(fileURLWithPath: source + "/d17/17"))
            }
        }
    }
}
