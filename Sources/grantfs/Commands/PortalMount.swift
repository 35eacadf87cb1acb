import Glibc
import GrantAdministration
import GrantModel
import GrantStore
import GrantSystem

/// The mount of the documents portal. A separate daemon serves it, so it survives when the portal is killed.
struct PortalMount: Sendable {
    let store: GrantStore
    let mountpoint: Mountpoint
    /// The record that was found last.
    private let record = Lock<MountRecord?>(nil)

    init(store: GrantStore, mountpoint: Mountpoint) { (self.store, self.mountpoint) = (store, mountpoint) }

    /// How long to wait until an earlier portal's mount is gone, in nanoseconds.
    private static let predecessorTimeout: Int64 = 3_000_000_000

    /// Mounts the documents, unless a daemon of this store shows them there already.
    func start() throws(GrantError) {
        let deadline = Clock.monotonic + Self.predecessorTimeout
        while try mountpoint.mounted() != nil, try current() == nil, Clock.monotonic < deadline { usleep(20_000) }
        if let there = try current() {
            record.withLock { $0 = there }
            return
        }
        let status: Int32
        do throws(Errno) {
            status = try BackgroundStart.run(words: words)
        } catch {
            throw GrantError(.mountFailed, "the daemon of the documents cannot be started", cause: error.description)
        }
        guard status == 0, let there = try current() else {
            throw GrantError(.mountFailed, "the documents cannot be shown at \(mountpoint.shown)", advice: "what the mount says is above")
        }
        record.withLock { $0 = there }
    }

    private var words: [[UInt8]] {
        ["grantfs", "mount", "--store", store.directory, "--portal", "--", "documents"].map { Array($0.utf8) } + [mountpoint.path]
    }

    /// Returns the record of the live documents mount of this store at the mountpoint; nil if there is none.
    private func current() throws(GrantError) -> MountRecord? {
        guard let entry = try mountpoint.mounted(), entry.type == GrantAdministrator.filesystemType else {
            return nil
        }
        return try store.mounts().last {
            $0.mountpoint == mountpoint.path && $0.shown == .documents && $0.process.isRunning
                && ($0.connection.map { $0.device == entry.device } ?? false)
        }
    }

    /// Waits up to a second for the daemon's end, and returns whether it has ended.
    var hasEnded: Bool {
        guard let record = record.withLock({ $0 }), let process = try? ProcessHandle(record.pid), record.process.isRunning else {
            return true
        }
        return process.hasEnded(within: 1000)
    }

    /// Ends the daemon, which withdraws everything first, and waits for that.
    func end() {
        guard let record = record.withLock({ $0 }), let process = try? ProcessHandle(record.pid), record.process.isRunning else { return }
        try? process.send(SIGTERM)
        _ = process.hasEnded(within: 15_000)
    }
}
