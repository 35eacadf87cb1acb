import Foundation
import TestSupport
import Testing

extension MountTests {
    /// A file that is open in the mount and grows on the host, while the daemon is stopped between two steps.
    @Suite struct HostLengtheningTests {
        private let fixture: MountFixture
        private let stops: StopPoints
        private let host: String

        init() throws {
            fixture = try MountFixture()
            stops = try StopPoints(fixture)
            let source = try fixture.source("work")
            host = source + "/file"
            try Data(repeating: 0x61, count: 1_000).write(to: URL(fileURLWithPath: host))
            try fixture.grant(source)
        }

        /// Opens the file in the mount, and reads it.
        private func opened(cache: String) throws -> Int32 {
            let mountpoint = try fixture.mount(options: "cache=" + cache)
            let file = open(mountpoint + "/work/file", O_RDWR | O_CLOEXEC)
            try #require(file >= 0 && Self.text(file, 1_000).count == 1_000)
            return file
        }

        private static func text(_ file: Int32, _ count: Int) -> [UInt8] {
            var bytes = [UInt8](repeating: 0, count: count)
            let read = pread(file, &bytes, count, 0)
            return Array(bytes.prefix(max(0, read)))
        }

        private func append() throws {
            let file = open(host, O_WRONLY | O_APPEND | O_CLOEXEC)
            defer { close(file) }
            let bytes = [UInt8](repeating: 0x61, count: 1_000)
            try #require(write(file, bytes, bytes.count) == bytes.count)
        }

        @Test(
            "A size from before a truncation does not reach the kernel after it",
            .enabled(if: Identity.isRoot && Machine.hasFUSE, "needs root and /dev/fuse"))
        func truncated() throws {
            let file = try opened(cache: "exclusive")
            defer { close(file) }
            stops.arm("sized")
            try append()
            try stops.awaitStop("sized")
            #expect(ftruncate(file, 100) == 0)
            stops.arm("lengthened")
            stops.goOn("sized")
            try stops.awaitStop("lengthened")
            var status = stat()
            #expect(fstat(file, &status) == 0 && status.st_size == 100, "\(status.st_size)")
            #expect(Self.text(file, 4_096).count == 100)
            stops.goOn("lengthened")
        }
    }
}
