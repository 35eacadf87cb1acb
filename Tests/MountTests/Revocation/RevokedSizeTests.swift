import Foundation
import TestSupport
import Testing

extension MountTests {
    @Suite(.enabled(if: Command.exists("python3"), Comment(rawValue: Machine.needs("python3")))) struct RevokedSizeTests {
        @Test(
            "SEEK_END does not report the size of a revoked file",
            arguments: ["shared", "exclusive", "none"], ["r", "r+"])
        func end(cache: String, mode: String) throws {
            let fixture = try MountFixture()
            let source = try fixture.source("a")
            try Data(count: 12_345).write(to: URL(fileURLWithPath: source + "/file"))
            try fixture.grant(source)
            let mountpoint = try fixture.mount(options: "cache=\(cache)")
            let script = """
                import errno, mmap, os, sys
                file = open(sys.argv[1], sys.argv[2] + 'b', buffering=0)
                fd = file.fileno()
                os.pread(fd, 100, 0)
                if sys.argv[2] == 'r+': os.pwrite(fd, b'x', 12344)
                memory = mmap.mmap(fd, 12345, prot=mmap.PROT_READ)
                print(os.lseek(fd, 0, os.SEEK_END), memory[12000], flush=True)
                sys.stdin.readline()
                def said(call):
                    try: return call()
                    except OSError as error: return errno.errorcode[error.errno]
                print(said(lambda: os.lseek(fd, 0, os.SEEK_END)))
                for place in 0, 12344, 12345, 20000, 1 << 40: print(said(lambda: os.pread(fd, 10, place)))
                print(said(lambda: os.fstat(fd).st_size), said(lambda: os.lseek(fd, 0, os.SEEK_DATA)))
                """
            let holder = try Child(["python3", "-I", "-c", script, mountpoint + "/a/file", mode])
            try holder.expect("12345 0")
            #expect(try fixture.revoke("a").allSatisfy(\.isConfirmed))
            holder.send("go on")
            let end = try #require(holder.line())
            // A number that says nothing, where the kernel does not ask.
            let isHidden = cache == "exclusive" && Int64(end).map { $0 > 1 << 60 } == true
            #expect(end == "EACCES" || isHidden, "SEEK_END gives \(end)")
            // docs/conformance.md, “What differs”.
            let refusals = cache == "exclusive" && Machine.losesErrorsOfReads ? ["EACCES", "EIO"] : ["EACCES"]
            for place in ["the start", "the last byte", "the end", "behind it", "far behind"] {
                let said = try #require(holder.line())
                #expect(refusals.contains(said), "\(place): \(said)")
            }
            #expect(holder.line() == "EACCES EACCES")
            #expect(holder.wait() == 0)
            #expect(try Data(contentsOf: URL(fileURLWithPath: source + "/file")).count == 12_345, "the file is as it was")
        }
    }
}
