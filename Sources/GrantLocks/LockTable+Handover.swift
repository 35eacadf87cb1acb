import CGrantSystem
import GrantCoordinator
import Glibc
import GrantSystem
import GrantViewTree

// Hands locks over to the next daemon. The descriptions carry the locks and stay the same, so only
// their owners are handed over.
extension LockTable {
    package func handOver(to state: inout HandoverWriter) {
        var all: [(ScopeID, LockDescription)] = []
        for scope in allScopes {
            for file in scope.state.withLock({ Array($0.files.values) }) {
                all += file.state.withLock { state in state.owners.values.map { (scope.id, $0) } }
            }
        }
        state.put(UInt64(truncatingIfNeeded: all.count))
        for (scope, description) in all {
            state.put(scope.rawValue)
            state.put(description.file.node)
            state.put(description.owner)
            state.put(description.handle)
            state.put(description.pid)
            state.put(description.uid)
            state.put(descriptor: description.descriptor)
            let ranges = description.file.state.withLock { _ in description.ranges }
            state.put(UInt64(truncatingIfNeeded: ranges.count))
            for range in ranges {
                state.put(range.start)
                state.put(range.end)
                state.put(flag: range.isExclusive)
            }
        }
    }

    /// Restores the locks. Call it after the nodes.
    package func takeOver(from state: inout HandoverReader, _ tree: NodeTree) throws(Errno) {
        for _ in 0..<(try state.takeCount(ofAtLeast: 40)) {
            let scope = self.scope(ScopeID(rawValue: try state.take()))
            let (node, owner, handle): (UInt64, UInt64, UInt64) = (try state.take(), try state.take(), try state.take())
            let (pid, uid): (pid_t, uid_t) = (try state.take(), try state.take())
            let descriptor = try state.takeDescriptor()
            var ranges: [LockedRange] = []
            for _ in 0..<(try state.takeCount(ofAtLeast: 17)) {
                let (start, end): (Int64, Int64) = (try state.take(), try state.take())
                var range = LockedRange(start: start, length: 0, isExclusive: try state.takeFlag())
                range.end = end
                ranges.append(range)
            }
            guard descriptor >= 0 else { throw Errno(EBADMSG) }
            let (share, number) = (tree.takeOverShare(scope: scope.id.rawValue, user: uid), nextNumber())
            withFile(node, in: scope) { file, state in
                let made = LockDescription(
                    number: number, owner: owner, handle: handle, file: file, pid: pid, uid: uid, descriptor: descriptor, share: share)
                made.ranges = ranges
                made.record = record(made, in: scope.id)
                state.owners[owner] = made
                state.handles[handle, default: []].append(owner)
                state.held.change(made, removed: [], added: ranges)
            }
            _ = scope.count(1 + ranges.count, of: uid)
        }
    }

    /// Answers interrupted requests that no thread has handled yet.
    ///
    /// The kernel reports an interrupt once, and to this daemon. Call it during a pause.
    package func answerInterrupted() {
        for scope in allScopes {
            let waiters = scope.state.withLock {
                $0.waiters.values.filter { !$0.isGranted && $0.interrupted.load(ordering: .sequentiallyConsistent) }
            }
            for waiter in waiters where scope.take(waiter) { answer(waiter, EINTR) }
        }
    }

    /// The requests of all waiters, in order of arrival. The next daemon serves them again.
    package var waitingMessages: [[UInt8]] {
        allScopes.flatMap { $0.state.withLock { Array($0.waiters.values) } }.sorted { $0.number < $1.number }.map(\.message).filter {
            !$0.isEmpty
        }
    }
}
