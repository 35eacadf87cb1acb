import GrantFUSE
import Glibc
import GrantSystem
import GrantViewTree

// The two threads behind oplocks. One answers open events and never blocks, since workers of all
// mounts open such files. The other starts write-back, each file on its own thread.
extension Oplocks {
    /// Starts the threads.
    ///
    /// If opens cannot be made to wait (without CAP_SYS_ADMIN, before Linux 6.1), does nothing.
    /// Every file then counts as opened by other processes as well.
    func start(for view: ViewFS) {
        self.view = view
        let hasBegun = Semaphore()
        do throws(Errno) {
            try WorkerThread.start("grantfs-openers") { [self] in
                // Made here, because its descriptors are in this thread's own table.
                guard let openings = try? OpenPermissionEvents(wakeup: wakeup) else { return hasBegun.post() }
                hasOpenings.store(true, ordering: .releasing)
                hasBegun.post()
                watch(openings)
            }.detach()
            // Waits until the thread has done the steps that need capabilities, which the daemon
            // drops later.
            hasBegun.wait()
            guard hasOpenings.load(ordering: .acquiring) else { return }
            try WorkerThread.start("grantfs-oplocks") { [self] in runJobs() }.detach()
            limit.store(min(OpenPermissionEvents.capacity / 4, 16384), ordering: .releasing)
        } catch {
            return
        }
    }

    private func watch(_ openings: borrowing OpenPermissionEvents) {
        let own = getpid()
        var marks: [NodeKey: OpenPermissionEvents.Mark] = [:]
        // Each waiting open is a descriptor. Without room in the table for the next event the
        // kernel would deny that open.
        let room = min(OpenPermissionEvents.capacity / 4, 1024)
        var waiting = 0
        while true {
            openings.wait(milliseconds: millisecondsUntilLate, ignoresOpenings: waiting >= room)
            releaseExpired()
            for command in drainCommands() {
                switch command {
                case .mark(let key, let descriptor, let answer):
                    if let mark = openings.mark(descriptor) {
                        marks[key] = mark
                        answer.isMarked = true
                    }
                    answer.isReady.post()
                case .unmark(let key): marks.removeValue(forKey: key).map { openings.unmark($0) }
                case .allow(let list):
                    for opening in list { openings.allow(opening) }
                    waiting -= list.count
                case .barrier(let semaphore): semaphore.post()
                }
            }
            while waiting < room, let opening = openings.next() {
                if mayPass(opening, isOwn: opening.process == own) {
                    openings.allow(opening)
                } else {
                    waiting += 1
                }
            }
        }
    }

    private func drainCommands() -> [Command] {
        state.withLock { state in
            defer { state.commands = [] }
            return state.commands
        }
    }

    /// Whether an open may pass immediately. Otherwise it is added to those that wait for the file.
    private func mayPass(_ opening: OpenPermissionEvents.Opening, isOwn: Bool) -> Bool {
        guard let key = NodeKey(descriptor: opening.descriptor) else { return true }
        let (passes, breaks) = state.withLock { state -> (Bool, Bool) in
            guard var entry = state.entries[key] else { return (true, false) }
            var breaks = false
            switch entry.stage {
            case .looking:
                if !isOwn { state.entries[key]?.isContended = true }
                return (true, false)
            case .held:
                if isOwn { return (true, false) }
                startBreaking(&entry, key, &state)
                breaks = true
            case .breaking: if isOwn { return (true, false) }
            }
            entry.openings.append(opening)
            state.entries[key] = entry
            return (false, breaks)
        }
        if breaks { jobsPending.post() }
        return passes
    }

    /// The timeout of the next wait for events, in milliseconds. -1 if no write-back has a
    /// deadline.
    private var millisecondsUntilLate: Int32 {
        let deadline = state.withLock { state in state.breaking.isEmpty ? .max : state.nextDeadline }
        if deadline == .max { return -1 }
        return Int32(clamping: max(0, deadline - Clock.monotonic) / 1_000_000 + 1)
    }

    /// Releases opens whose deadline has passed.
    ///
    /// The file may be incomplete, but no open waits forever for a program or a filesystem that
    /// hangs.
    private func releaseExpired() {
        let (requests, hasLate) = state.withLock { state -> ([GrantSystem.Semaphore], Bool) in
            let now = Clock.monotonic
            guard state.nextDeadline <= now else { return ([], false) }
            let late = state.breaking.values.filter { state.entries[$0].map { $0.deadline <= now } ?? false }
            var requests: [GrantSystem.Semaphore] = []
            for key in late { if let entry = state.entries[key] { requests += end(key, entry, &state) } }
            // One log message for all of them. The next check comes after an interval, even if
            // there are many.
            if !late.isEmpty { state.jobs.append(.late) }
            let next = state.breaking.values.compactMap { state.entries[$0]?.deadline }.min()
            state.nextDeadline = next.map { max($0, now + 50_000_000) } ?? .max
            return (requests, !late.isEmpty)
        }
        for request in requests { request.post() }
        if hasLate { jobsPending.post() }
    }

    // MARK: write-back

    /// Carries out the queued jobs, for as long as the daemon lives.
    private func runJobs() {
        while true {
            jobsPending.waitForAny()
            for job in state.withLock({ state in
                defer { state.jobs = [] }
                return state.jobs
            }) {
                switch job {
                case .writeBack(let key, let node, let scope, let number):
                    // Counts against no user's quota of tasks: there is no user 2³² − 1.
                    writers.run(for: UInt64(truncatingIfNeeded: scope) << 32 | 0xFFFF_FFFF) { [self] in
                        view?.writeBackData(node)
                        written(key, number)
                    }
                case .late:
                    let why = "what programs had stored in mappings of it could not be written down"
                    SystemLog.write(.warning, "a locked file was opened beside the mount after a wait: \(why)")
                }
            }
        }
    }

    private func written(_ key: NodeKey, _ number: UInt64) {
        let requests = state.withLock { state -> [GrantSystem.Semaphore] in
            guard let entry = state.entries[key], entry.number == number else { return [] }
            return end(key, entry, &state)
        }
        for request in requests { request.post() }
        wakeup.signal()
    }
}
