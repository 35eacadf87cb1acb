import Foundation
import GrantModel
import GrantSystem
import TestSupport
import Testing

@testable import GrantStore

@Suite struct SeveralConnections {
    let scratch = Scratch()

    @Test("A connection to the store notices changes by other connections only")
    func noticeEachOther() throws {
        let one = try GrantStore(directory: scratch.store, create: true)
        let other = try GrantStore(directory: scratch.store, create: false)
        let before = try one.dataVersion()
        #expect(try one.dataVersion() == before)
        try one.insert(try sample("own"), by: tester)
        #expect(try one.dataVersion() == before)
        try other.insert(try sample("other's"), by: tester)
        #expect(try one.dataVersion() != before)
    }

    @Test("Kept grants show each change, by the connection itself and by others")
    func kept() throws {
        let one = try GrantStore(directory: scratch.store, create: true)
        one.keepGrants()
        let other = try GrantStore(directory: scratch.store, create: false)
        let view = try ViewName("other")
        #expect(try one.grants().isEmpty)
        for (number, store) in [one, other, one, other].enumerated() {
            let made = try sample("grant\(number)", view: number < 2 ? .standard : view)
            try store.insert(made, by: tester)
            #expect(try one.grants().count == number + 1 && one.grants().map(\.id) == other.grants().map(\.id))
            #expect(try one.grants(view: view).map(\.id) == other.grants(view: view).map(\.id))
            _ = try store.revoke([made.id], by: tester)
            #expect(try one.grants().first { $0.id == made.id }?.state == .revoked)
        }
        try FileManager.default.removeItem(atPath: scratch.database)
        #expect(throws: GrantError.self) { try one.grants() }
    }

    @Test("Concurrent threads lose no grant and no log number in a store")
    func ofManyThreadsLoseNothing() async throws {
        let shared = try GrantStore(directory: scratch.store, create: true)
        let directory = scratch.store
        try await withThrowingTaskGroup(of: Void.self) { group in
            for thread in 0..<6 {
                group.addTask {
                    let store = thread % 2 == 0 ? shared : try GrantStore(directory: directory, create: false)
                    for number in 0..<25 { try store.insert(try sample("\(thread)-\(number)"), by: tester) }
                }
            }
            try await group.waitForAll()
        }
        #expect(try shared.grants().count == 150)
        #expect(try shared.log(after: 0, limit: 1000).map(\.number) == Array(1...150))
    }

    @Test("Concurrent processes that create one store lose no grant")
    func ofManyProcessesThatAllWantToMakeTheStoreLoseNothing() throws {
        let writers = try (0..<6).map { try writer("insert", scratch.store, "p\($0)-", "20") }
        for writer in writers {
            let output = writer.collected(within: 300)?.output
            #expect(writer.wait() == 0, "\(output.map { String(decoding: $0, as: UTF8.self) } ?? "it hangs")")
        }
        let store = try GrantStore(directory: scratch.store, create: false)
        #expect(try store.grants().count == 120)
        #expect(Set(try FileManager.default.contentsOfDirectory(atPath: scratch.store)).isSuperset(of: ["grants.sqlite", "key", "run"]))
        #expect(!(try FileManager.default.contentsOfDirectory(atPath: scratch.store)).contains { $0.hasPrefix(".new") })
    }

    @Test("A store keeps the steps that a killed process had confirmed")
    func keepWhatAKilledProcessHadConfirmed() throws {
        let store = try GrantStore(directory: scratch.store, create: true)
        let grant = try sample("docs", state: .revoked)
        try store.insert(grant, by: tester)
        for round in 0..<8 {
            let writer = try writer("toggle", scratch.store, grant.id.description)
            let first = try #require(writer.line(within: 60))
            usleep(useconds_t(7_000 * round))
            writer.kill()
            let rest = try #require(writer.collected(within: 60)).output
            let last = rest.split(separator: UInt8(ascii: "\n")).last.map { String(decoding: $0, as: UTF8.self) } ?? first
            let now = try #require(try store.grant(grant.id))
            let words = last.split(separator: " ")
            let activation = try #require(words.count == 2 ? Int64(words[1]) : nil, "\(last)")
            // The confirmed step holds, or the next one, which was done and not yet reported.
            if words[0] == "revoked" {
                #expect((now.state == .revoked && now.activation == activation) || now.activation == activation + 1)
            } else {
                #expect(now.activation == activation || (now.state == .active && now.activation == activation + 1))
            }
        }
    }
}

@Suite(.serialized) struct AQueueForTheStore {
    let scratch = Scratch()

    @Test("A long queue for the store refuses no caller")
    func isWaitedFor() async throws {
        let directory = scratch.store
        _ = try GrantStore(directory: directory, create: true)
        let refused = try await withThrowingTaskGroup(of: Int.self) { group in
            for number in 0..<40 {
                group.addTask {
                    try await onThread {
                        let store = try GrantStore(directory: directory, create: false)
                        // Each has the store for a while, three times, as a command on a slow disk does.
                        return (0..<3).count { _ in
                            code {
                                try store.write { (database) throws(GrantError) in
                                    usleep(110_000)
                                    try database.query(
                                        "INSERT INTO log (time, event, uid, pid, program, detail) VALUES (0, 'opened', ?, 0, '', '')",
                                        [.integer(Int64(number))])
                                }
                            } != nil
                        }
                    }
                }
            }
            return try await group.reduce(0, +)
        }
        #expect(refused == 0, "of 120 turns")
        #expect(try GrantStore(directory: directory, create: false).lastLogNumber() == 120)
    }

    @Test("A store that another transaction blocks fails as unavailable")
    func isGivenUp() throws {
        let holder = try GrantStore(directory: scratch.store, create: true)
        let other = try GrantStore(directory: scratch.store, create: false)
        try holder.write { (_) throws(GrantError) in
            #expect(code { try other.insert(try sample("docs"), by: tester) } == .storeUnavailable)
        }
        try other.insert(try sample("docs"), by: tester)
    }
}

/// On a thread of its own, so that all of them wait at the same time however few processors there are.
private func onThread<Result: Sendable>(_ body: @escaping @Sendable () throws -> Result) async throws -> Result {
    try await withCheckedThrowingContinuation { continuation in
        Thread { continuation.resume(with: Swift.Result(catching: body)) }.start()
    }
}

@Suite struct AStoreWithoutDescriptors {
    let scratch = Scratch()

    @Test("A store without descriptors fails as exhausted, and an open store goes on")
    func isNoDamage() throws {
        try GrantStore(directory: scratch.store, create: true).insert(try sample("docs"), by: tester)
        let starved = try writer("starve", scratch.store)
        let output = try #require(starved.collected(within: 60)).output
        let lines = String(decoding: output, as: UTF8.self).split(separator: "\n").map(String.init)
        #expect(lines.count == 8, "\(lines)")
        for line in lines { #expect(line.hasSuffix(" read: 1 revoked: 1"), "\(line)") }
        #expect(lines.allSatisfy { $0.contains("opened: exhausted ") || $0.contains("opened: 1 ") }, "\(lines)")
        #expect(lines.first?.contains("opened: exhausted") == true && lines.last?.contains("opened: 1") == true, "\(lines)")
    }
}

/// A `StoreWriter` that runs.
private func writer(_ arguments: String...) throws -> Child {
    let products = URL(fileURLWithPath: "/proc/self/exe").resolvingSymlinksInPath().deletingLastPathComponent()
    return try Child([products.appendingPathComponent("StoreWriter").path] + arguments)
}

@Suite(.serialized) struct TenThousandGrants {
    let scratch = Scratch()

    /// The work of one thread, regardless of the machine's load. A limit is ten times the need of a
    /// debug build, so only a superfluous loop exceeds it.
    @Test("Ten thousand grants are opened, read and revoked within the limits of work")
    func areOpenedReadAndRevokedWithoutMuchWork() throws {
        var ids: [GrantID] = []
        do {
            let grants = try (0..<10_000).map { try sample("grant\($0)") }
            ids = grants.map(\.id)
            try GrantStore(directory: scratch.store, create: true).insert(grants, by: tester)
        }
        let worked = { () -> Double in
            var time = timespec()
            clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time)
            return Double(time.tv_sec) + Double(time.tv_nsec) / 1e9
        }
        var start = worked()
        let lap = {
            defer { start = worked() }
            return worked() - start
        }
        let store = try GrantStore(directory: scratch.store, create: false)
        let opened = lap()
        #expect(try store.grants().count == 10_000)
        let read = lap()
        _ = try store.revoke([ids[0]], by: tester)
        let one = lap()
        _ = try store.revoke(ids, by: tester)
        let all = lap()
        #expect(try store.grants().allSatisfy { $0.state == .revoked })
        #expect(opened < 1 && read < 5 && one < 0.5 && all < 15)
        print("10,000 grants: opened by \(opened) s of work, read by \(read) s, one revoked by \(one) s, all by \(all) s")
    }
}
