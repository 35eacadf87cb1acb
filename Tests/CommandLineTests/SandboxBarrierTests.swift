import Glibc
import GrantSystem
import TestSupport
import Testing

@testable import grantfs_sandbox

@Suite struct SandboxBarrierTests {
    private func end(of barrier: SandboxBarrier) -> Int32 { fcntl(barrier.file.number, F_DUPFD_CLOEXEC, 3) }

    @Test("The reader of a released sandbox barrier gets end of file")
    func whoReadsGoesOnWhenItIsReleased() throws {
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

    @Test("The reader of an unreleased sandbox barrier fails with ECONNRESET")
    func whoReadsFailsWhenItIsNotReleased() throws {
        var barrier: SandboxBarrier? = try SandboxBarrier()
        let file = end(of: try #require(barrier))
        defer { close(file) }
        barrier = nil
        var byte: UInt8 = 0
        #expect(read(file, &byte, 1) == -1 && errno == ECONNRESET)
    }

    @Test(
        "bubblewrap starts the program only after the barrier is released",
        .enabled(if: Machine.hasSandboxes, "needs bubblewrap"),
        arguments: [true, false])
    func bubblewrapBeginsNothingUnlessItIsReleased(isReleased: Bool) throws {
        var barrier: SandboxBarrier? = try SandboxBarrier()
        let words = ["bwrap", "--ro-bind", "/", "/", "--tmpfs", "/tmp", "--ro-bind-data", "3", "/tmp/file", "--", "true"]
        let child = try ChildProcess.spawn(
            "bwrap", arguments: words.map { Array($0.utf8) }, silent: true, descriptors: [try #require(barrier).file.number])
        if isReleased { barrier?.release() }
        barrier = nil
        #expect(try (ChildProcess.wait(child) == 0) == isReleased)
    }
}
