import GrantFUSE
import Glibc
import GrantSystem
import GrantViewTree

// The two threads behind oplocks. One hears of openings and answers them; it waits for nobody, since workers of this daemon open such files
// themselves, and so does every other mount's. The other has written down what is to be, each file on a thread of its own, as that can hang.
extension Oplocks {
    /// Starts the threads. Where openings cannot be made to wait (without CAP_SYS_ADMIN, before Linux 6.1), nothing happens and every file counts as
    /// somebody else's, too.
    func start(for view: ViewFS) {
        self.view = view
        let hasBegun = Semaphore()
        do throws(Errno) {
            try WorkerThread.start("grantfs-openers") { [self] in
                // Here, because what it opens is this thread's own.
                guard let openings = try? OpenPermissionEvents(wakeup: wakeup) else { return hasBegun.post() }
                hasOpenings.store(true, ordering: .releasing)
                hasBegun.post()
                watch(openings)
            }.detach()
            // Until it has done what cannot be done any more once the daemon has given up what it need not do.
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
        // Each opening that waits is a descriptor. When the table had no room for the next, the kernel would deny it.
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

    /// Whether an opening need not wait.
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

    private var millisecondsUntilLate: Int32 {
        let deadline = state.withLock { state in state.breaking.isEmpty ? .max : state.nextDeadline }
        if deadline == .max { return -1 }
        return Int32(clamping: max(0, deadline - Clock.monotonic) / 1_000_000 + 1)
    }

    /// Whoever has waited too long goes on: a file may be incomplete, but nobody waits for ever for a program or a filesystem that hangs.
    private func releaseExpired() {
        let (requests, hasLate) = state.withLock { state -> ([GrantSystem.Semaphore], Bool) in
            let now = Clock.monotonic
            guard state.nextDeadline <= now else { return ([], false) }
            let late = state.breaking.values.filter { state.entries[$0].map { $0.deadline <= now } ?? false }
            var requests: [GrantSystem.Semaphore] = []
            for key in late { if let entry = state.entries[key] { requests += end(key, entry, &state) } }
            // One word for all of them, and the next look not too soon, however many there are.
            if !late.isEmpty { state.jobs.append(.late) }
            let next = state.breaking.values.compactMap { state.entries[$0]?.deadline }.min()
            state.nextDeadline = next.map { max($0, now + 50_000_000) } ?? .max
            return (requests, !late.isEmpty)
        }
        for request in requests { request.post() }
        if hasLate { jobsPending.post() }
    }

    // MARK: writing down

    /// For as long as the daemon lives.
    private func runJobs() {
        while true {
            jobsPending.waitForAny()
            for job in state.withLock({ state in
                defer { state.jobs = [] }
                return state.jobs
            }) {
                switch job {
                case .writeBack(let key, let node, let scope, let number):
                    // Nobody's share of tasks: there is no user 2³² − 1.
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
