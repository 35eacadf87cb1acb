import Foundation
import TestSupport
import Testing

extension MountTests {
    /// Many who append to one file, through two mounts of its view and on the host.
    @Suite struct Appending {
        /// $1 is the open mode, $2 the number of lines for each writer, then a place for each
        /// writer. Prints the faults of the file as the first place's host shows it.
        private static let writers = """
            import os, sys
            flags, count, places = getattr(os, sys.argv[1]) | os.O_APPEND, int(sys.argv[2]), sys.argv[3:]
            children = []
            for number, place in enumerate(places):
                child = os.posix_spawn(sys.executable, [sys.executable, '-c', '''
            import os, sys
            fd = os.open(sys.argv[1], int(sys.argv[2]) | os.O_CREAT, 0o666)
            for i in range(int(sys.argv[4])):
                line = b'writer %s line %d %s end\\\\n' % (sys.argv[3].encode(), i, b'.' * (i % 90))
                assert os.write(fd, line) == len(line)
            ''', place + '/log', str(flags), str(number), str(count)], os.environ)
                children.append(child)
            print(sum(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children))
            """

        private func appended(_ how: String, at places: [String], to file: String) throws -> (lines: Int, whole: Int, bytes: Int) {
            let output = try Command.run(["python3", "-c", Self.writers, how, "150"] + places).orThrow()
            #expect(output.trimmed == "0")
            let contents = try Data(contentsOf: URL(fileURLWithPath: file))
            let lines = String(decoding: contents, as: UTF8.self).split(separator: "\n")
            let whole = Set(lines.filter { $0.hasPrefix("writer ") && $0.hasSuffix(" end") && !$0.dropFirst().contains("writer") })
            // Not the sum of the lines: the end of a torn line may be alone, an empty line that
            // `split` drops.
            return (lines.count, whole.count, contents.count)
        }

        /// `past`: as on a kernel that maps past the cache, or as on one that cannot.
        private func prepared(_ cache: String, past: Bool = true) throws -> (fixture: MountFixture, source: String, mounts: [String]) {
            let fixture = try MountFixture()
            if !past { fixture.switches["GRANTFS_TEST_NO_DIRECT_MAPS"] = "1" }
            let source = try fixture.source("a")
            try fixture.grant(source)
            let mounts = try ["one", "two"].map { try fixture.mount(at: $0, options: "cache=\(cache)") + "/a" }
            return (fixture, source, mounts)
        }

        /// What six writers of 150 lines write: the same lines but for the writer's number, which is one digit.
        private static let bytesWanted = 6 * (0..<150).reduce(0) { $0 + "writer 0 line \($1)  end\n".utf8.count + $1 % 90 }

        @Test("Write-only appends of two mounts and the host lose and tear no line", arguments: ["shared", "none"])
        func writeOnly(cache: String) throws {
            let (fixture, source, mounts) = try prepared(cache)
            let result = try appended("O_WRONLY", at: [mounts[0], mounts[1], source, mounts[0], mounts[1], source], to: source + "/log")
            #expect(result == (900, 900, Self.bytesWanted))
            fixture.finish()
        }

        @Test(
            "Read-write appends of one mount lose and tear no line", arguments: ["shared", "none"], [true, false])
        func readAndWrite(cache: String, past: Bool) throws {
            let (fixture, source, mounts) = try prepared(cache, past: past)
            let result = try appended("O_RDWR", at: Array(repeating: mounts[0], count: 6), to: source + "/log")
            #expect(result == (900, 900, Self.bytesWanted))
            fixture.finish()
        }

        /// Through the cache the kernel sends a write across a page boundary in two requests
        /// (docs/semantics.md). Each of them is appended.
        @Test(
            "Read-write appends of two mounts and the host lose no byte",
            arguments: ["shared", "none"], [true, false])
        func readAndWriteEverywhere(cache: String, past: Bool) throws {
            let (fixture, source, mounts) = try prepared(cache, past: past)
            let result = try appended("O_RDWR", at: [mounts[0], mounts[1], source, mounts[0], mounts[1], source], to: source + "/log")
            #expect(result.bytes == Self.bytesWanted)
            if past, Self.kernelMapsDirectly { #expect(result == (900, 900, Self.bytesWanted)) }
            fixture.finish()
        }

        /// FUSE_DIRECT_IO_ALLOW_MMAP came with Linux 6.6.
        private static let kernelMapsDirectly = Machine.kernel >= (6, 6)

        /// A program that reads, maps and appends by one descriptor and by another one. Arguments: the file, and the same beside the mount.
        private static let mapping = """
            import mmap, os, sys
            path, behind = sys.argv[1:]
            fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
            os.write(fd, b'a' * 8192)
            memory, private = mmap.mmap(fd, 8192), mmap.mmap(fd, 8192, mmap.MAP_PRIVATE)
            cached = os.open(path, os.O_RDWR)
            memory[0:5] = b'store'
            print(os.pread(fd, 5, 0), os.pread(cached, 5, 0), private[0:5])
            os.pwrite(cached, b'write', 4096)
            print(os.pread(fd, 5, 4096), memory[4096:4101], private[4096:4101])
            memory[10:14] = b'more'
            os.write(fd, b'end')
            print(os.fstat(fd).st_size, os.fstat(cached).st_size, os.pread(cached, 10, 8190), os.pread(fd, 10, 8190), memory[10:14])
            memory.flush()
            host = os.open(behind, os.O_RDWR | os.O_APPEND)
            print(os.pread(host, 14, 0), os.pread(host, 5, 4096), os.pread(host, 10, 8190))
            os.write(host, b'host')
            print(os.pread(fd, 20, 8190), os.write(fd, b'again'), os.pread(fd, 20, 8190), os.fstat(fd).st_size)
            print(os.lseek(fd, 0, os.SEEK_END), os.read(fd, 1), os.sendfile(1, fd, 8190, 12))
            """

        @Test(
            "A file open for appends can be mapped and read consistently", arguments: ["shared", "none", "exclusive"],
            [true, false])
        func mapped(cache: String, past: Bool) throws {
            let (fixture, source, mounts) = try prepared(cache, past: past)
            let native = try fixture.directory("native") + "/log"
            // With write-back nothing goes to the file behind or comes from there at once, and through the cache nothing comes at once.
            let end = cache == "exclusive" ? "host = " : cache == "shared" && !(past && Self.kernelMapsDirectly) ? "os.write(host" : nil
            let script = end.map { Self.mapping.components(separatedBy: $0)[0] } ?? Self.mapping
            let run = { (path: String, behind: String) in try Command.run(["python3", "-c", script, path, behind]).orThrow().text }
            #expect(try run(mounts[0] + "/log", source + "/log") == run(native, native))
            fixture.finish()
        }
    }
}
