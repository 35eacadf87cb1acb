import Foundation
import Glibc
import TestSupport
import Testing

extension MountTests {
    /// Numbers at their limits, from programs and from filesystems below a grant: each call gets an
    /// answer, and other callers do not notice.
    @Suite(.enabled(if: Identity.isRoot, Comment(rawValue: Machine.needsRoot))) struct OddNumbers {
        /// A view with a grant that a process reads all the time while `body` runs. The daemon is
        /// the same afterwards, and every read succeeded.
        private func beside(_ fixture: MountFixture, options: String? = nil, _ body: (String) throws -> Void) throws {
            let innocent = try fixture.source("innocent")
            try Data("text".utf8).write(to: URL(fileURLWithPath: innocent + "/file"))
            try fixture.grant(innocent)
            let mount = try fixture.mount(options: options)
            let daemon = try fixture.daemon(at: mount)
            let reader = Reader(mount + "/innocent/file")
            reader.start()
            defer { reader.end() }
            try fixture.wait(until: "it reads") { reader.count > 0 }
            try body(mount)
            // Once more, begun afterwards.
            let count = reader.count
            try fixture.wait(until: "it reads still") { reader.count > count + 1 }
            let read = reader.end()
            #expect(read.failures == 0, "\(read)")
            #expect(Processes.isRunning(daemon))
            #expect(try fixture.daemon(at: mount) == daemon)
        }

        @Test(
            "A search for a hole at the largest offset is answered",
            arguments: ["shared", "exclusive", "none"])
        func searchForAHole(cache: String) throws {
            let fixture = try MountFixture()
            let source = try fixture.source("memory")
            try fixture.mountOther(["mount", "-t", "tmpfs", "none"], at: source)
            // The last possible byte of a file: its page ends beyond the largest offset, and there
            // the filesystem finds the hole.
            let last = open(source + "/file", O_RDWR | O_CREAT | O_CLOEXEC, 0o666)
            try #require(last >= 0 && pwrite(last, [1], 1, .max - 1) == 1)
            close(last)
            try fixture.grant(source)
            try beside(fixture, options: "cache=" + cache) { mount in
                let file = open(mount + "/memory/file", O_RDWR | O_CLOEXEC)
                try #require(file >= 0)
                defer { close(file) }
                let (data, hole): (Int32, Int32) = (3, 4)
                for back in [1, 2, 100, 4094, 4095] {
                    #expect(lseek(file, .max - back, hole) == -1, "\(back)")
                    #expect(errno == EOVERFLOW, "\(back): \(String(cString: strerror(errno)))")
                }
                for back in 0...9000 where back % 500 < 3 { for how in [data, hole] { _ = lseek(file, .max - back, how) } }
                #expect(lseek(file, 0, hole) == 0)
            }
        }

        @Test(
            "statfs(2) of the root saturates instead of overflowing"
        )
        func spaceOfTheRoot() throws {
            let fixture = try MountFixture()
            let sources = [
                try HostileSource("files", in: fixture, space: .files), try HostileSource("more", in: fixture, space: .files),
                try HostileSource("blocks", in: fixture, space: .blocks), try HostileSource("all", in: fixture, space: .all),
            ]
            defer { for source in sources { source.end() } }
            for source in sources { try fixture.grant(source.directory) }
            try beside(fixture) { mount in
                var space = statvfs()
                for _ in 0..<3 {
                    #expect(statvfs(mount, &space) == 0)
                    for grant in ["files", "more", "blocks", "all"] {
                        var own = statvfs()
                        #expect(statvfs(mount + "/" + grant, &own) == 0)
                    }
                }
                #expect(space.f_files == .max && space.f_ffree == .max && space.f_blocks == .max)
                _ = try Command.run(["df", mount], within: 30).orThrow()
            }
        }

        @Test("Flags from a hostile filesystem do not end the daemon")
        func flags() throws {
            let fixture = try MountFixture()
            let source = try HostileSource("hostile", in: fixture)
            defer { source.end() }
            try fixture.grant(source.directory)
            try beside(fixture) { mount in
                let file = open(mount + "/hostile/f-control", O_RDONLY | O_CLOEXEC)
                try #require(file >= 0)
                defer { close(file) }
                for _ in 0..<30 {
                    var flags: Int32 = 0
                    // FS_IOC_GETFLAGS
                    _ = ioctl(file, 0x8008_6601, &flags)
                }
            }
        }

        @Test(
            "Calls with extreme numbers do not end the daemon",
            arguments: ["shared", "exclusive", "none"])
        func everyCall(cache: String) throws {
            let fixture = try MountFixture()
            let memory = try fixture.source("memory")
            try fixture.mountOther(["mount", "-t", "tmpfs", "-o", "size=64m", "none"], at: memory)
            for name in ["f-plain", "f-other"] { try Data(repeating: 1, count: 5000).write(to: URL(fileURLWithPath: memory + "/" + name)) }
            mkdir(memory + "/d-plain", 0o755)
            symlink("nowhere", memory + "/l-plain")
            mkfifo(memory + "/p-plain", 0o666)
            let source = try HostileSource("hostile", in: fixture)
            defer { source.end() }
            for directory in [memory, source.directory] { try fixture.grant(directory) }
            try beside(fixture, options: "cache=" + cache) { mount in
                let attack = try Child([Programs.attacker, "numbers", mount + "/memory", mount + "/hostile"])
                try attack.expect("ready")
                let said = attack.line(within: 300)
                #expect(said?.contains("calls") == true, "\(said ?? "nothing")")
                #expect(attack.wait(within: 30) == 0)
            }
        }
    }
}

/// Reads a file again and again, on a thread of its own, past nothing but the kernel's cache of names.
private final class Reader: @unchecked Sendable {
    private let path: String
    private let lock = NSLock()
    private var isOver = false
    private var result = (count: 0, failures: 0)
    private let done = DispatchSemaphore(value: 0)

    init(_ path: String) { self.path = path }

    func start() {
        Thread.detachNewThread { [self] in
            while !lock.withLock({ isOver }) {
                var bytes = [UInt8](repeating: 0, count: 16)
                let file = open(path, O_RDONLY | O_CLOEXEC)
                let count = file < 0 ? -1 : read(file, &bytes, bytes.count)
                if file >= 0 { close(file) }
                lock.withLock { result = (result.count + 1, result.failures + (count == 4 ? 0 : 1)) }
                usleep(1000)
            }
            done.signal()
        }
    }

    var count: Int { lock.withLock { result.count } }

    @discardableResult
    func end() -> (count: Int, failures: Int) {
        if lock.withLock({
            isOver
                ? false
                : {
                    isOver = true; return true
                }()
        }) {
            done.wait()
        }
        return lock.withLock { result }
    }
}
