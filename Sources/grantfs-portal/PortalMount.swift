import Glibc
import GrantAdministration
import GrantCommandLine
import GrantModel
import GrantStore
import GrantSystem

/// The mount of the documents portal. A separate daemon serves it, so it survives when the portal is killed.
struct PortalMount: Sendable {
    let store: GrantStore
    let mountpoint: Mountpoint
    /// The record that was found last.
    private let record = Lock<MountRecord?>(nil)
    /// The shared lock that is held by each service that shows documents by this mount: a service
    /// that ends also ends the mount if no other service holds it.
    private let use = Lock<Int32?>(nil)

    init(store: GrantStore, mountpoint: Mountpoint) { (self.store, self.mountpoint) = (store, mountpoint) }

    /// How long to wait until an earlier portal's mount is gone, in nanoseconds.
    private static let predecessorTimeout: Int64 = 3_000_000_000
    /// How long a service may take that ends its mount.
    private static let endTimeout: Int64 = 20_000_000_000

    /// Mounts the documents, unless a daemon of this store shows them there already.
    func start() throws(GrantError) {
        try join()
        let deadline = Clock.monotonic + Self.predecessorTimeout
        while true {
            while try mountpoint.mounted() != nil, try current() == nil, Clock.monotonic < deadline { usleep(20_000) }
            if let there = try current() { return record.withLock { $0 = there } }
            let program = try CompanionProgram.daemon.file()
            let status: Int32
            do throws(Errno) {
                status = try BackgroundStart.run(program, words: words)
            } catch {
                throw GrantError(.mountFailed, "the daemon of the documents cannot be started", cause: error.description)
            }
            if let there = try current() { return record.withLock { $0 = there } }
            // Another service may have been faster, and be ending again by now.
            guard status != 0, try mountpoint.mounted() != nil, Clock.monotonic < deadline else { break }
        }
        throw GrantError(.mountFailed, "the documents cannot be shown at \(mountpoint.shown)", advice: "what the mount says is above")
    }

    /// Says that this service uses the mount, so that others do not end it. If another service is ending it, this waits until that has ended.
    func join() throws(GrantError) {
        guard use.withLock({ $0 == nil }) else { return }
        let file = "\(store.runDirectory)/portal-\(Hexadecimal.text(SipHash(key0: 0, key1: 0).hash(mountpoint.path)))"
        do throws(Errno) {
            // Open until this process ends. Not for reading: a program that can only read this directory must not be able to lock it.
            let descriptor = try Errno.check(Glibc.open(file, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0o200))
            use.withLock { $0 = descriptor }
            _ = try Errno.check(fchmod(descriptor, 0o200))
            let deadline = Clock.monotonic + Self.endTimeout
            while flock(descriptor, LOCK_SH | LOCK_NB) != 0 {
                guard errno == EWOULDBLOCK || errno == EINTR, Clock.monotonic < deadline else { throw Errno(errno) }
                usleep(20_000)
            }
        } catch {
            throw GrantError(.mountFailed, "the documents cannot be shown at \(mountpoint.shown)", cause: "\(file): \(error)")
        }
    }

    /// Whether no other service uses the mount. If so, none can begin to use it until this process has ended.
    private var isAlone: Bool { use.withLock { $0.map { flock($0, LOCK_EX | LOCK_NB) == 0 } ?? true } }

    private var words: [[UInt8]] {
        ["grantfs", "mount", "--store", store.directory, "--portal", "--", "documents"].map { Array($0.utf8) } + [mountpoint.path]
    }

    /// Returns the record of the live documents mount of this store at the mountpoint, or nil if
    /// there is none.
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

    /// Ends the daemon, which withdraws everything first, and waits for that. It does nothing if
    /// another service has taken the mount over.
    func end() {
        guard isAlone else { return }
        guard let record = record.withLock({ $0 }), let process = try? ProcessHandle(record.pid), record.process.isRunning else { return }
        try? process.send(SIGTERM)
        _ = process.hasEnded(within: 15_000)
    }
}
