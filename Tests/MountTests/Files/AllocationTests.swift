import Foundation
import TestSupport
import Testing

extension MountTests {
    /// fallocate(2) of more than fits into one piece.
    @Suite(.enabled(if: Identity.isRoot && Command.exists("python3"), "needs root and python3"))
    struct Allocation {
        /// Of each call in one directory the error, and what it leaves of the file in another, which is the same.
        private static let calls = """
            import ctypes, errno, os, sys
            libc = ctypes.CDLL(None, use_errno=True)
            libc.fallocate64.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long]
            for mode in (0, 1, 3, 0x10, 0x11):
                for length in (1 << 21, 3 << 30, 1 << 40, 1 << 60):
                    path = f'{sys.argv[1]}/{mode}-{length}'
                    file = os.open(path, os.O_RDWR | os.O_CREAT)
                    os.pwrite(file, b'x' * 100000, 0)
                    result = libc.fallocate64(file, mode, 4096, length)
                    said = errno.errorcode[ctypes.get_errno()] if result else 'OK'
                    os.fsync(file)
                    status = os.stat(f'{sys.argv[2]}/{mode}-{length}')
                    print(mode, length, said, status.st_size, status.st_blocks)
                    os.unlink(path)
                    os.close(file)
            """

        @Test(
            "fallocate(2) gives its native result for endless and oversized ranges",
            arguments: ["shared", "exclusive", "none"])
        func asNatively(cache: String) throws {
            let fixture = try MountFixture()
            let source = try fixture.source("volume")
            try fixture.mountOther(["mount", "-t", "tmpfs", "-o", "size=64m", "none"], at: source)
            try fixture.grantfs("grant", source, "--name", "volume").orThrow()
            let mountpoint = try fixture.mount(options: "cache=\(cache)")
            func said(_ directory: String) throws -> [String] {
                try Command.run(["timeout", "-k", "1", "30", "/usr/bin/python3", "-c", Self.calls, directory, source]).orThrow().lines
            }
            #expect(try said(mountpoint + "/volume") == said(source))
        }
    }
}
