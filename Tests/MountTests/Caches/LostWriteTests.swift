import Foundation
import TestSupport
import Testing

extension MountTests {
    /// An acknowledged write that cannot be stored is reported to its writer.
    @Suite(.enabled(if: Identity.isRoot, Comment(rawValue: Machine.needsRoot))) struct LostWrites {
        @Test(
            "A write that only partly fits on the disk is reported by `fsync` or `close`",
            arguments: ["shared", "exclusive", "none"], [false, true])
        func half(cache: String, mapped: Bool) throws {
            let fixture = try MountFixture()
            let source = try fixture.source("a")
            try fixture.mountOther(["mount", "-t", "tmpfs", "-o", "size=1536k", "none"], at: source)
            try fixture.grant(source)
            let mount = try fixture.mount(options: "cache=\(cache)") + "/a"
            let script = """
                import mmap, os, sys
                path, mapped = sys.argv[1], sys.argv[2] == 'true'
                fd, data, said = os.open(path, os.O_RDWR | os.O_CREAT), os.urandom(2 << 20), []
                def attempt(call, *arguments):
                    try: return call(*arguments)
                    except OSError as error: said.append(os.strerror(error.errno))
                if mapped:
                    os.ftruncate(fd, 2 << 20)
                    memory = mmap.mmap(fd, 2 << 20)
                    memory[:] = data
                    attempt(memory.flush)
                else:
                    count = attempt(os.write, fd, data)
                    if count is not None and count < 2 << 20: said.append('part')
                attempt(os.fsync, fd)
                attempt(os.close, fd)
                print(*said)
                """
            let said = try Command.run(["python3", "-I", "-c", script, mount + "/file", "\(mapped)"]).orThrow().trimmed
            #expect(["part", "No space left on device"].contains { said.hasPrefix($0) }, "said “\(said)”")
            fixture.finish()
        }

        @Test("A write beyond the largest offset is reported once to each open file")
        func tooFar() throws {
            let fixture = try MountFixture()
            // A file on ext4 with blocks of 1 KiB ends at 16 TiB. A mount's largest offset is
            // larger.
            let source = try fixture.source("a")
            try Command.shell("truncate -s 64M \"$1\"; mkfs.ext4 -q -b 1024 \"$1\"", fixture.base + "/disk").orThrow()
            try fixture.mountOther(["mount", "-o", "loop", fixture.base + "/disk"], at: source)
            try fixture.grant(source)
            let mount = try fixture.mount(options: "cache=exclusive") + "/a"
            let script = """
                import os, sys
                place = sys.argv[1]
                def attempt(call, *arguments):
                    try: call(*arguments); return 'ok'
                    except OSError as error: return os.strerror(error.errno)
                def opened(name): return os.open(place + '/' + name, os.O_RDWR | os.O_CREAT)
                other, one, two = opened('other'), opened('file'), opened('file')
                os.write(other, b'other')
                os.pwrite(one, b'x', 1 << 45)
                print(attempt(os.fsync, one), attempt(os.fsync, two), attempt(os.fsync, one), attempt(os.close, two))
                print(attempt(os.fsync, other), attempt(os.close, other))
                os.ftruncate(one, 0)
                os.pwrite(one, b'y', 1 << 45)
                print(attempt(os.close, one) == 'ok')
                """
            let said = try Command.run(["python3", "-I", "-c", script, mount]).orThrow().text.split(separator: "\n")
            #expect(said == ["File too large File too large ok ok", "ok ok", "False"])
            fixture.finish()
        }
    }
}
