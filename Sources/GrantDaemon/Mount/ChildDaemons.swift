import GrantCommandLine
import Glibc
import GrantModel
import GrantMounts
import GrantStore
import GrantSystem

/// The daemons that a process starts which serves no mount itself. It finds them in the store's records of mounts, so it also finds a
/// successor, after `grantfs upgrade` or with `-o recover`.
struct ChildDaemons {
    let store: GrantStore

    /// The time-out for the end of daemons, in seconds.
    private static let endTimeout = 12.0

    /// Blocks the signals that end this process, for `wait`.
    static func blockSignals() -> sigset_t {
        var signals = sigset_t()
        sigemptyset(&signals)
        for number in [SIGTERM, SIGINT, SIGHUP] { sigaddset(&signals, number) }
        pthread_sigmask(SIG_BLOCK, &signals, nil)
        return signals
    }

    /// Waits `nanoseconds` (less than a second), and collects daemons that have ended. Returns false when one of the signals has come.
    static func wait(_ nanoseconds: Int, for signals: sigset_t) -> Bool {
        var (signals, time) = (signals, timespec(tv_sec: 0, tv_nsec: nanoseconds))
        let isOver = sigtimedwait(&signals, nil, &time) >= 0
        ChildProcess.reap()
        return !isOver
    }

    /// Starts a daemon and returns whether its mount answers. The daemon reports errors on standard error.
    func start(flags: [String], options: String, name: String, at place: [UInt8]) throws(GrantError) -> Bool {
        let words = ["grantfs", "mount", "--store", store.directory] + flags + (options.isEmpty ? [] : ["-o", options]) + ["--", name]
        do throws(Errno) {
            return try BackgroundStart.run("/proc/self/exe", words: words.map { Array($0.utf8) } + [place]) == 0
        } catch {
            throw GrantError(.mountFailed, "a daemon cannot be started", cause: error.description)
        }
    }

    /// Ends the daemons of these mounts, which withdraw everything first, and waits until they have ended.
    func end(_ records: [MountRecord]) {
        // The handle is opened before the process is verified, so the signal reaches no other process that gets its id.
        let processes = Processes(records)
        processes.send(SIGTERM)
        let deadline = Clock.deadline(seconds: Self.endTimeout)
        while !processes.haveEnded, Clock.monotonic < deadline { usleep(5_000) }
        ChildProcess.reap()
    }

    /// Handles of running daemons.
    private struct Processes: ~Copyable {
        private let handles: [Box]

        private final class Box {
            let handle: ProcessHandle
            init(_ handle: consuming ProcessHandle) { self.handle = handle }
        }

        init(_ records: [MountRecord]) {
            handles = records.compactMap { record in
                guard let handle = try? ProcessHandle(record.pid), record.process.isRunning else { return nil }
                return Box(handle)
            }
        }

        func send(_ signal: Int32) { for box in handles { try? box.handle.send(signal) } }

        var haveEnded: Bool { handles.allSatisfy { $0.handle.hasEnded } }
    }
}
