import Glibc
import Testing

@testable import grantfs

@Suite struct SandboxBarrierTests {
    private func end(of barrier: SandboxBarrier) -> Int32 { fcntl(barrier.file.number, F_DUPFD_CLOEXEC, 3) }

    @Test func whoReadsGoesOnWhenItIsReleased() throws {
        let barrier = try SandboxBarrier()
        let file = end(of: barrier)
        defer { close(file) }
        var waiting = pollfd(fd: file, events: Int16(truncatingIfNeeded: POLLIN), revents: 0)
        #expect(poll(&waiting, 1, 50) == 0)
        barrier.release()
        barrier.release()
        var byte: UInt8 = 0
        #expect(read(file, &byte, 1) == 0)
    }

    @Test func whoReadsFailsWhenItIsNotReleased() throws {
        var barrier: SandboxBarrier? = try SandboxBarrier()
        let file = end(of: try #require(barrier))
        defer { close(file) }
        barrier = nil
        var byte: UInt8 = 0
        #expect(read(file, &byte, 1) == -1 && errno == ECONNRESET)
    }
}
