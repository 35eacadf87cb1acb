import Foundation
import GrantSystem
import Testing

@testable import GrantAdministration

@Suite struct LiveMountTests {
    /// On a busy machine a look at a process may take longer than it is waited for, and until it is over nobody else looks there.
    @Test func aDaemonThatCannotBeLookedAtIsNotTakenForDead() throws {
        let bench = try Bench()
        let daemon = Process()
        daemon.executableURL = URL(fileURLWithPath: "/bin/cat")
        daemon.standardInput = Pipe()
        try daemon.run()
        defer { daemon.terminate() }
        let record = try bench.register(socket: "s", process: ProcessIdentity(running: daemon.processIdentifier))
        let isOver = Semaphore()
        _ = ProcessLook.at([daemon.processIdentifier]) { _ in isOver.wait() }
        #expect(!record.process.isRunning, "it cannot be seen")
        #expect(record.isServed(in: bench.store.runDirectory))
        #expect(try bench.store.servedMounts().map(\.id) == [record.id])
        isOver.post()
        daemon.terminate()
        let deadline = Clock.deadline(seconds: 20)
        while record.isServed(in: bench.store.runDirectory), Clock.monotonic < deadline { usleep(10_000) }
        #expect(try bench.store.servedMounts().isEmpty, "its end is seen")
    }
}
