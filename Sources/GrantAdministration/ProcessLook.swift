import GrantSystem

/// Looks at processes through /proc, and is not held up by one at which the kernel lets nobody look.
///
/// For as long as a process is in execve(2) the kernel holds its `exec_update_lock`, upon which most of what stands below /proc/PID waits. A program can make
/// that last: it has a file of its own FUSE filesystem closed by the exec, and never answers. The lock of its memory can be held in like ways.
enum ProcessLook {
    struct Outcome<Result: Sendable>: Sendable {
        var found: [Int32: Result] = [:]
        /// Who could not be looked at.
        var unseen: [Int32] = []
    }

    /// At whom a look that was left behind goes on. Nobody else looks there, or a program that looks now and then would fill with threads.
    private static let stuck = Lock<Set<Int32>>([])
    /// A look takes well below a millisecond. Those that were left behind have the last time together, so that a busy machine hides nobody.
    private static let patience = TimedSweep.Timeouts(first: 200_000_000, later: 10_000_000, most: 200)
    private static let lastPatience: Int64 = 1_000_000_000

    private struct Progress<Result: Sendable> {
        var begun: Set<Int32> = []
        var found: [Int32: Result] = [:]
    }

    /// Calls `look` for each process, on other threads than the caller's. What a look finds that was left behind is dropped.
    ///
    /// Locking: `progress`, then `stuck`.
    static func at<Result: Sendable>(_ pids: [Int32], _ look: @escaping @Sendable (Int32) -> Result) -> Outcome<Result> {
        let free = stuck.withLock { stuck in pids.filter { !stuck.contains($0) } }
        let (progress, signal) = (Lock(Progress<Result>()), Semaphore())
        var left: [Int32] = []
        let leave = { (pid: Int32) in
            left.append(pid)
            progress.withLock { progress in
                // It may have been done this moment; and of many the last ones are not begun.
                if progress.begun.contains(pid), progress.found[pid] == nil { _ = stuck.withLock { $0.insert(pid) } }
            }
        }
        TimedSweep.run(free, patience: patience, with: {}, leaving: leave) { pid, _ in
            _ = progress.withLock { $0.begun.insert(pid) }
            let result = look(pid)
            progress.withLock { $0.found[pid] = result }
            _ = stuck.withLock { $0.remove(pid) }
            signal.post()
        }
        let deadline = Clock.monotonic + lastPatience
        let isWaiting = { progress.withLock { progress in left.contains { progress.begun.contains($0) && progress.found[$0] == nil } } }
        while isWaiting(), signal.wait(until: deadline) {}
        let found = progress.withLock(\.found)
        return Outcome(found: found, unseen: pids.filter { found[$0] == nil })
    }
}
