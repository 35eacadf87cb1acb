import GrantCoordinator
import GrantFUSE
import Glibc
import GrantSystem
import GrantViewTree
import Testing

@testable import GrantLocks

/// The costs of a deadlock search and of a close beside many locks of others.
@Suite struct WhatLocksCost {
    private let table = LockTable()

    /// `owner` has a byte of a file.
    private func hold(_ owner: UInt64, _ byte: Int64, of node: UInt64, in scope: ScopeLocks) -> LockDescription {
        table.withFile(node, in: scope) { file, state in
            let made = LockDescription(number: owner, owner: owner, handle: owner, file: file, pid: 1, uid: 0, descriptor: -1)
            state.owners[owner] = made
            let range = LockedRange(start: byte, length: 1, isExclusive: true)
            let (removed, added) = made.ranges.set(range, isLocked: true)
            state.held.change(made, removed: removed, added: added)
            return made
        }
    }

    /// The owner of a description waits for a byte.
    private func wait(_ description: LockDescription, for byte: Int64, of node: UInt64, in scope: ScopeLocks) -> LockWaiter {
        let range = LockedRange(start: byte, length: 1, isExclusive: true)
        let waiter = LockWaiter(scope: scope, node: node, uid: 0, lockRequest: .range(description, range), request: nil)
        table.register(waiter)
        scope.state.withLock { $0.waiters[waiter.number] = waiter }
        waiter.file = table.withFile(node, in: scope) { file, state in
            _ = state.add(waiter)
            return file
        }
        return waiter
    }

    @Test("A lock search stops at its limit of steps on a long chain of waiters")
    func chain() {
        let scope = table.scope(ScopeID(rawValue: 1))
        let length: UInt64 = 8_000
        let held = (0..<length).map { hold($0 + 1, Int64($0), of: 7, in: scope) }
        let waiters = (0..<length - 1).map { wait(held[Int($0)], for: Int64($0) + 1, of: 7, in: scope) }
        var most = 0
        for waiter in waiters {
            var steps = LockTable.searchLimit
            #expect(!table.isInDeadlock(waiter, steps: &steps))
            most = max(most, LockTable.searchLimit - steps)
        }
        #expect(most <= LockTable.searchLimit + 2, "\(most) steps")
        for waiter in waiters { waiter.lockRequest = nil }
    }

    @Test("A deadlock across files and grants is found beside a long chain of waiters", arguments: [2, 10, 100])
    func circle(length: Int) {
        let crowd = table.scope(ScopeID(rawValue: 1))
        let others = (0..<4_000).map { hold(UInt64($0) + 1_000_000, Int64($0), of: 7, in: crowd) }
        var waiters = (0..<3_999).map { wait(others[$0], for: Int64($0) + 1, of: 7, in: crowd) }
        // Every second one has what the next one waits for in another grant.
        let scopes = [table.scope(ScopeID(rawValue: 2)), table.scope(ScopeID(rawValue: 3))]
        let held = (0..<length).map { hold(UInt64($0) + 1, Int64($0), of: 100 + UInt64($0 % 2), in: scopes[$0 % 2]) }
        var circle: [LockWaiter] = []
        for place in 0..<length {
            let next = (place + 1) % length
            circle.append(wait(held[place], for: Int64(next), of: 100 + UInt64(next % 2), in: scopes[next % 2]))
            var steps = LockTable.searchLimit
            #expect(table.isInDeadlock(circle[place], steps: &steps) == (place == length - 1))
        }
        var steps = LockTable.searchLimit
        #expect(!table.isInDeadlock(circle[0], steps: &steps), "of all in a circle it is the last")
        waiters += circle
        for waiter in waiters { waiter.lockRequest = nil }
    }

    @Test("A close of a file without locks blocks no other lock")
    func closing() throws {
        var template = Array("/tmp/grantfs-locks.XXXXXX".utf8CString)
        let made = try #require(mkdtemp(&template)).withMemoryRebound(to: CChar.self, capacity: template.count) { String(cString: $0) }
        defer { rmdir(made) }
        let tree = NodeTree(descriptorLimit: 100)
        let nodes = tree.addScope(1, handleBase: nil, crossesMounts: false)
        let directory = try FileDescriptor.open(made.utf8, OpenFlags.path)
        let status = try directory.status()
        let interned = tree.internRoot(directory, status, of: nodes)
        let root = try #require(interned)
        let (node, locks, scope) = (NodeID(root), LockTable(tree: tree), ScopeID(rawValue: 1))
        let own = locks.scope(scope)
        // Another owner holds all of them.
        let isDone = Semaphore()
        own.state.withLock { _ in
            locks.scopes.withLock { _ in
                locks.waits.withLock { _ in
                    _ = try? WorkerThread.start("closer") {
                        for owner in UInt64(0)..<100 { locks.releaseOwner(owner, of: node) }
                        locks.releaseFile(1, of: node)
                        isDone.post()
                    }.detach()
                    #expect(isDone.wait(until: Clock.monotonic + 20_000_000_000))
                }
            }
        }
        // Two owners. One of them closes.
        let opened = { Glibc.open(made, O_RDONLY | O_DIRECTORY) }
        for owner in [UInt64(1), 2] {
            let found = locks.description(
                owner, of: root, in: scope, handle: owner, pid: 1, uid: 5,
                share: { tree.share(scope: scope.rawValue, user: 5) }, open: opened)
            guard case .success(let description) = found else { continue }
            let range = LockedRange(start: Int64(owner) * 10, length: 3, isExclusive: false)
            #expect(locks.attempt(.range(description, range)) == 0)
        }
        #expect(own.locks(of: 5) == 4)
        locks.releaseOwner(1, of: node)
        #expect(locks.existingDescription(1, of: root) == nil && locks.existingDescription(2, of: root) != nil)
        #expect(own.locks(of: 5) == 2)
        locks.releaseFile(2, of: node)
        #expect(own.locks(of: 5) == 0 && own.state.withLock { $0.files.isEmpty && $0.shares.isEmpty })
        #expect(tree.nodes.find(root)?.pointee.isLocked.load(ordering: .relaxed) == false)
    }

    @Test("Each user has a separate share of the locks of a scope")
    func shares() {
        let scope = table.scope(ScopeID(rawValue: 1))
        #expect(scope.count(LockShare.mostLocks, of: 1, limit: LockShare.mostLocks))
        #expect(!scope.count(1, of: 1, limit: LockShare.mostLocks))
        #expect(scope.count(1, of: 2, limit: LockShare.mostLocks))
        #expect(table.scope(ScopeID(rawValue: 2)).count(1, of: 1, limit: LockShare.mostLocks))
        let found = table.description(9, of: 3, in: scope.id, handle: 1, pid: 1, uid: 1, share: { nil }, open: { -EIO })
        if case .failure(let error) = found { #expect(error.rawValue == ENOLCK) } else { Issue.record("it got one more") }
    }
}

/// Tasks that hang.
@Suite struct KeptThreadsTests {
    @Test("Tasks of one share wait only for each other")
    func shares() {
        let threads = ThreadPool()
        let (goOn, hung, others, done) = (Semaphore(), Semaphore(), Semaphore(), Semaphore())
        let count = ThreadPool.shareLimit * 2
        for _ in 0..<count {
            threads.run(for: 1) {
                hung.post()
                goOn.wait()
                done.post()
            }
        }
        let limit = Clock.monotonic + 30_000_000_000
        for _ in 0..<ThreadPool.shareLimit { #expect(hung.wait(until: limit)) }
        threads.run(for: 2) { others.post() }
        #expect(others.wait(until: limit))
        #expect(!hung.wait(until: Clock.monotonic + 50_000_000), "no more than the share run")
        for _ in 0..<count { goOn.post() }
        for _ in 0..<count { #expect(done.wait(until: limit)) }
    }
}
