import Foundation
import GrantStore
import GrantSystem
import TestSupport
import Testing

@testable import GrantKit

/// What starting access and waiting cost, by the number of the steps that are too expensive to be taken each time.
@Suite(.serialized) struct CostTests {
    @Test("Access to a directory that was found starts without another look at all grants")
    func foundDirectory() throws {
        let bench = try Bench()
        let url = try bench.plain("found")
        try bench.program {
            for number in 0..<60 { _ = try GrantedDirectory.grant(bench.plain("other\(number)")) }
            _ = try GrantedDirectory.grant(url)
            func time(_ url: URL, _ count: Int) throws -> Int {
                let start = Machine.milliseconds
                for _ in 0..<count { try #require(url.startAccessingSecurityScopedResource()) }
                for _ in 0..<count { url.stopAccessingSecurityScopedResource() }
                return Int(Machine.milliseconds - start)
            }
            _ = try time(url, 1)
            let found = try time(url, 200)
            // Each of these comes after a change of the store, so the grants are read again.
            var looked = 0
            for number in 0..<10 {
                _ = try GrantedDirectory.grant(bench.plain("more\(number)"))
                looked += try time(url, 1)
            }
            #expect(found < looked * 10, "200 starts: \(found) ms; 10 after a change: \(looked) ms")
        }
    }

    @Test("The first access to each of many directories reads the grants once")
    func firstStarts() throws {
        let bench = try Bench()
        let urls = try (0..<150).map { try bench.plain("folder\($0)") }
        try bench.program {
            for url in urls { _ = try GrantedDirectory.grant(url) }
            let store = try GrantStore(directory: bench.fixture.store, create: false)
            func time(_ body: () throws -> Void) rethrows -> Double {
                let start = Machine.milliseconds
                try body()
                return Machine.milliseconds - start
            }
            let looked = try time { for _ in urls { try #require(store.grants().count == urls.count) } }
            let started = try time {
                for url in urls {
                    try #require(url.startAccessingSecurityScopedResource())
                    url.stopAccessingSecurityScopedResource()
                }
            }
            #expect(started < looked, "\(urls.count) first starts: \(started) ms; as many times all grants: \(looked) ms")
        }
    }

    @Test("The first access to each of many directories reads the mount table once")
    func firstLooksAtMounts() throws {
        let bench = try Bench()
        let urls = try (0..<50).map { try bench.plain("folder\($0)") }
        try bench.program {
            for url in urls { _ = try GrantedDirectory.grant(url) }
            let size = try Data(contentsOf: URL(fileURLWithPath: "/proc/self/mountinfo")).count
            let before = try bytesRead()
            for url in urls {
                try #require(url.startAccessingSecurityScopedResource())
                url.stopAccessingSecurityScopedResource()
            }
            let read = try bytesRead() - before
            // Also the grants are read once. A mount by another test may change the table meanwhile.
            #expect(read < urls.count / 2 * size, "\(read) bytes, and the table has \(size)")
        }
    }

    /// How many bytes this thread has read so far.
    private func bytesRead() throws -> Int {
        let words = try String(contentsOfFile: "/proc/thread-self/io", encoding: .utf8).split(whereSeparator: \.isWhitespace)
        return try #require(words.firstIndex(of: "rchar:").flatMap { Int(words[$0 + 1]) })
    }

    @Test("A found directory fails to start once its grant is revoked or expired")
    func revokedMeanwhile() throws {
        let bench = try Bench()
        let url = try bench.granted("docs")
        try bench.program {
            func isGranted() -> Bool {
                guard url.startAccessingSecurityScopedResource() else { return false }
                url.stopAccessingSecurityScopedResource()
                return true
            }
            #expect(isGranted() && isGranted())
            let granted = try GrantedDirectory(containing: url)
            try granted.revoke()
            #expect(!isGranted())
            #expect(try granted.restore().id == granted.id && isGranted())
            try bench.fixture.grantfs("revoke", "docs").orThrow()
            #expect(!isGranted())
            try bench.fixture.restore("docs")
            #expect(isGranted())
            try bench.fixture.grantfs("set", "docs", "--expires", "1s").orThrow()
            #expect(isGranted())
            try eventually("it has expired") { !isGranted() }
        }
    }

    @Test("Waiting coordinations have no thread each")
    func waiting() throws {
        let bench = try Bench()
        let url = try bench.plain("folder").appendingPathComponent("note")
        try bench.programWithoutStore {
            let queue = OperationQueue()
            queue.maxConcurrentOperationCount = 4
            let done = Lock(0)
            func threads() throws -> Int { try FileManager.default.contentsOfDirectory(atPath: "/proc/self/task").count }
            let before = try threads()
            var error: NSError?
            NSFileCoordinator().coordinate(writingItemAt: url, error: &error) { _ in
                do {
                    for _ in 0..<5000 {
                        NSFileCoordinator().coordinate(with: [.writingIntent(with: url)], queue: queue) { _ in done.withLock { $0 += 1 } }
                    }
                    try waitForClaims(5000, on: url)
                    // Other tests of this process have threads, too.
                    #expect(try threads() - before < 200)
                } catch {
                    Issue.record(error)
                }
            }
            #expect(error == nil)
            try eventually("all have run") { done.withLock { $0 } == 5000 }
        }
    }
}
