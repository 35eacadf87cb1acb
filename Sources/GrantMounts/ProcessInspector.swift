import GrantSystem

/// Inspects processes through /proc without being blocked by an uninspectable one.
///
/// During execve(2) the kernel holds the process's `exec_update_lock`, and most files below /proc/PID wait for it. A program can make
/// that last: the exec closes a file of its own FUSE filesystem, which never answers. It can hold the lock of its memory in similar
/// ways.
enum ProcessInspector {
    struct Outcome<Result: Sendable>: Sendable {
        var found: [Int32: Result] = [:]
        /// Processes that could not be inspected.
        var unseen: [Int32] = []
        /// Those of them for which there was no time.
        var skipped: Set<Int32> = []
    }

    /// Processes with an inspection that still hangs. They are not tried again, or a program that inspects repeatedly would fill with
    /// threads.
    private static let stuck = Lock<Set<Int32>>([])
    /// A step of an inspection takes well below a millisecond. All that hang share the last time-out, so that a busy machine hides no process.
    private static let timeouts = TimedSweep.Timeouts(first: 200_000_000, later: 10_000_000, most: 200)
    private static let lastTimeout: Int64 = 1_000_000_000

    private struct Progress<Result: Sendable> {
        var begun: Set<Int32> = []
        var found: [Int32: Result] = [:]
    }

    /// Calls `look` for each process, on other threads. The result of one that timed out is dropped. `look` calls `onProgress` after each
    /// step: the time-out counts from there.
    ///
    /// `until`: a moment of `Clock.monotonic` after which no more processes are inspected: there may be thousands, with thousands of
    /// descriptors each.
    ///
    /// Locking: `progress`, then `stuck`.
    static func inspect<Result: Sendable>(
        _ pids: [Int32], until deadline: Int64 = .max, _ look: @escaping @Sendable (Int32, _ onProgress: () -> Void) -> Result
    ) -> Outcome<Result> {
        let free = stuck.withLock { stuck in pids.filter { !stuck.contains($0) } }
        let (progress, signal) = (Lock(Progress<Result>()), Semaphore())
        var (left, skipped): ([Int32], Set<Int32>) = ([], [])
        let leave = { (pid: Int32) in
            left.append(pid)
            if Clock.monotonic >= deadline { skipped.insert(pid) }
            progress.withLock { progress in
                // It may have finished this moment, and with many processes the last ones may not
                // have begun.
                if progress.begun.contains(pid), progress.found[pid] == nil { _ = stuck.withLock { $0.insert(pid) } }
            }
        }
        TimedSweep.run(free, patience: timeouts, until: deadline, with: {}, leaving: leave) { pid, _, onProgress in
            _ = progress.withLock { $0.begun.insert(pid) }
            let result = look(pid, onProgress)
            progress.withLock { $0.found[pid] = result }
            _ = stuck.withLock { $0.remove(pid) }
            signal.post()
        }
        let last = skipped.isEmpty ? Clock.monotonic + lastTimeout : deadline
        let isWaiting = { progress.withLock { progress in left.contains { progress.begun.contains($0) && progress.found[$0] == nil } } }
        while isWaiting(), signal.wait(until: last) {}
        let found = progress.withLock(\.found)
        let unseen = pids.filter { found[$0] == nil }
        return Outcome(found: found, unseen: unseen, skipped: skipped.intersection(unseen))
    }
}
