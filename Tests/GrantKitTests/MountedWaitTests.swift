import Foundation
import GrantCoordinator
import GrantSystem
import TestSupport
import Testing

@testable import GrantKit

/// Many coordinations that wait in the daemon of a mount. They are counted for the whole process, so one test at a time.
@Suite(.enabled(if: Machine.hasFUSE, Comment(rawValue: Machine.noFUSE)), .serialized)
struct MountedWaitTests {
    private func mounted() throws -> (Bench, source: URL, inMount: URL) {
        let bench = try Bench()
        let source = try bench.granted("docs")
        let mountpoint = try bench.fixture.mount()
        return (bench, source, URL(fileURLWithPath: mountpoint + "/docs", isDirectory: true))
    }

    @Test("Coordinations that wait for another process have no thread each")
    func waitingTogether() throws {
        let (bench, source, inMount) = try mounted()
        func threads() throws -> Int { try FileManager.default.contentsOfDirectory(atPath: "/proc/self/task").count }
        try bench.program {
            let other = try bench.fixture.holding("write", source.path)
            let (queue, coordinator, done, given) = (OperationQueue(), NSFileCoordinator(), Lock(0), Lock<[Int]>([]))
            queue.maxConcurrentOperationCount = 4
            let before = try threads()
            for number in 0..<300 {
                let intent = NSFileAccessIntent.writingIntent(with: inMount.appendingPathComponent("file\(number)"))
                (number % 3 == 0 ? coordinator : NSFileCoordinator()).coordinate(with: [intent], queue: queue) { error in
                    if let error {
                        given.withLock { $0.append((error as NSError).code) }
                    } else {
                        done.withLock { $0 += 1 }
                    }
                }
            }
            try eventually("all wait in the daemon") { DaemonWaits.process.count == 300 }
            // Other tests of this process have threads, too.
            #expect(try threads() - before < 100)
            #expect(done.withLock { $0 } == 0)
            coordinator.cancel()
            try eventually("a third is given up") { given.withLock { $0.count } == 100 }
            #expect(Set(given.withLock { $0 }) == [CocoaError.userCancelled.rawValue])
            other.closeInput()
            #expect(other.wait() == 0)
            try eventually("the others have run") { done.withLock { $0 } == 200 }
        }
    }

    @Test("Waiting coordinations fail when their grant is revoked or their daemon ends")
    func lostTogether() throws {
        let (bench, source, inMount) = try mounted()
        try bench.program {
            let codes = Lock<[Int]>([])
            func wait() throws {
                let count = codes.withLock { $0.count }
                for number in 0..<20 {
                    let intent = NSFileAccessIntent.writingIntent(with: inMount.appendingPathComponent("file\(number)"))
                    NSFileCoordinator().coordinate(with: [intent], queue: OperationQueue()) { error in
                        codes.withLock { $0.append((error as NSError?)?.code ?? 0) }
                    }
                }
                // One that the daemon does not know yet would have its item without the daemon.
                try eventually("all wait in the daemon") { DaemonWaits.process.count == 20 }
                #expect(codes.withLock { $0.count } == count)
            }
            let other = try bench.fixture.holding("write", source.path)
            try wait()
            try bench.fixture.revoke("docs")
            try eventually("all are refused") { codes.withLock { $0.count } == 20 }
            #expect(Set(codes.withLock { $0 }) == [CocoaError.fileWriteNoPermission.rawValue])
            other.closeInput()
            _ = other.wait()
            try bench.fixture.restore("docs")
            codes.withLock { $0 = [] }
            let next = try bench.fixture.holding("write", source.path)
            try wait()
            try bench.fixture.killDaemon(at: bench.fixture.base + "/mount")
            try eventually("all fail") { codes.withLock { $0.count } == 20 }
            #expect(Set(codes.withLock { $0 }) == [CocoaError.fileWriteUnknown.rawValue])
            next.closeInput()
        }
    }
}
