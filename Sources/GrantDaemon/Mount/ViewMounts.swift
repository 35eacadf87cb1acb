import Glibc
import GrantCommandLine
import GrantControl
import GrantModel
import GrantMounts
import GrantStore
import GrantSystem

/// The process behind `grantfs mount --views PATTERN`. It starts one daemon that shows a mountpoint for each matching view, and
/// one daemon for each of these views, which mounts it there.
///
/// It mounts a view again that has a grant and is not mounted.
final class ViewMounts {
    private let store: GrantStore
    private let daemons: ChildDaemons
    private let shown: ShownViews
    private let mountpoint: Mountpoint
    /// The options of `mount -o` for the mountpoints' daemon.
    private let ownOptions: String
    /// The options of `mount -o` for the views' daemons.
    private let viewOptions: String
    private let isPrivate: Bool
    /// The earliest time (`Clock.monotonic`) to mount a view after a failure, or after a user
    /// unmounted it.
    private var notBefore: [ViewName: Int64] = [:]
    private var seen: Set<ViewName> = []
    /// What this process has mounted, by the ids of the records. A successor of a daemon keeps its id.
    private var mounted: Set<GrantID> = []
    /// The mount of the mountpoints, by the id of its record.
    private var own: GrantID?
    /// Its device number, for when the store cannot be read.
    private var ownDevice: DeviceNumber?

    /// The interval at which the store is polled, in nanoseconds.
    private static let interval = 100_000_000
    /// The delay before the next attempt after a failure, or after a user unmounted the view:
    /// nanoseconds.
    private static let retryDelay: Int64 = 3_000_000_000

    /// `options` are the parsed options. `viewOptions` are the words of `-o` for the views' daemons.
    init(store: GrantStore, shown: ShownViews, mountpoint: Mountpoint, options: MountOptions, viewOptions: String) {
        (self.store, self.shown, self.mountpoint, self.viewOptions) = (store, shown, mountpoint, viewOptions)
        daemons = ChildDaemons(store: store)
        // fusermount3 refuses a mountpoint on a read-only mount. This one has no file that could be written.
        var own = options.words.filter { $0 != "ro" }
        // fusermount3 runs as root, which the kernel refuses in a user's FUSE filesystem without allow_other (fs/fuse/dir.c,
        // fuse_allow_current_process). The mode of the mountpoints keeps other users out.
        isPrivate = geteuid() != 0 && !options.allowOther
        if isPrivate { own.append("allow_other") }
        ownOptions = own.joined(separator: ",")
    }

    /// Mounts, and returns the exit status when the mount is gone or a signal has come. Calls `ready` once: with nil when every view that has
    /// a grant is mounted, or with the error when nothing is.
    func run(ready: (GrantError?) -> Void) -> Int32 {
        let signals = ChildDaemons.blockSignals()
        do throws(GrantError) {
            guard try mountOwn(), try mountMissing() else {
                let needsOther = isPrivate && own == nil && !Mountpoint.usersMayAllowOther
                throw GrantError(
                    .mountFailed, "the \(shown.description) cannot be mounted", cause: "what one of its mounts has said is above",
                    advice: needsOther ? "users need user_allow_other in /etc/fuse.conf for it (grantfs doctor looks)" : nil)
            }
        } catch {
            end()
            ready(error)
            return error.exitStatus
        }
        // Best effort: without it `status` cannot tell whether this process has died.
        let lock = own.flatMap { try? ViewMountsLock(of: $0, in: store) }
        defer { withExtendedLifetime(lock) {} }
        ready(nil)
        ServiceManager.ready("\(shown.description) mounted at \(mountpoint.shown)")
        var version: Int64?
        var next = Clock.monotonic
        while ChildDaemons.wait(Self.interval, for: signals) {
            // If the store cannot be read, the daemons refuse everything, and it is tried again.
            let now = try? store.dataVersion()
            if now == version, Clock.monotonic < next { continue }
            (version, next) = (now, Clock.monotonic + 1_000_000_000)
            if let records = try? store.mounts() {
                guard let own = records.first(where: { $0.id == own }) else { break }
                guard own.process.isRunning else {
                    if isUnmounted(own.connection?.device) { break }
                    return die(with: own)
                }
                // Otherwise it reads the store only once a second.
                _ = try? ControlClient.ask(
                    .apply(grants: [], timeoutMilliseconds: 1000), socket: own.socket, directory: store.runDirectory,
                    deadline: Clock.deadline(seconds: 1))
            } else if isUnmounted(ownDevice) {
                break
            }
            _ = try? mountMissing()
        }
        ServiceManager.stopping()
        end()
        return 0
    }

    // MARK: mounting

    /// Mounts the mountpoints. Returns false if that failed.
    private func mountOwn() throws(GrantError) -> Bool {
        let flags = ["--mountpoints"] + (isPrivate ? ["--private"] : [])
        guard try daemons.start(flags: flags, options: ownOptions, name: shown.label.description, at: mountpoint.path) else { return false }
        let made = try record(at: mountpoint.path)
        (own, ownDevice) = (made?.id, made?.connection?.device)
        return own != nil
    }

    /// The mount that a daemon has just made there.
    private func record(at place: [UInt8]) throws(GrantError) -> MountRecord? {
        try store.mounts().last { $0.mountpoint == place && $0.process.isRunning }
    }

    /// Mounts the views that have a grant and are not mounted. Returns false if one failed.
    @discardableResult
    private func mountMissing() throws(GrantError) -> Bool {
        guard let own else { return false }
        var isDone = true
        let records = try store.mounts()
        for view in try store.views() {
            guard let place = place(of: view) else { continue }
            if records.contains(where: { isMounted($0, at: place) }) {
                seen.insert(view)
                continue
            }
            if seen.remove(view) != nil { notBefore[view] = Clock.monotonic + Self.retryDelay }
            if Clock.monotonic < notBefore[view] ?? 0 { continue }
            // Another mount of the same views, with other options perhaps, may have taken the place of this one meanwhile.
            let flags = ["--new", "--below", own.description]
            if try daemons.start(flags: flags, options: viewOptions, name: view.description, at: place) {
                seen.insert(view)
                if let made = try record(at: place) { mounted.insert(made.id) }
            } else {
                isDone = false
                notBefore[view] = Clock.monotonic + Self.retryDelay
                SystemLog.write(
                    .warning, Terminal.visible("the view “\(view)” could not be mounted below \(mountpoint.shown), and is tried again"))
            }
        }
        return isDone
    }

    /// Whether a daemon serves the mount there. One that still ends, of a mount that is gone, does not.
    private func isMounted(_ record: MountRecord, at place: [UInt8]) -> Bool {
        guard record.mountpoint == place, record.process.isRunning else { return false }
        // It is being mounted, or the table cannot be read.
        guard let device = record.connection?.device, let entry = try? Mountpoint(canonical: place).mounted() else {
            return record.connection == nil
        }
        return entry.device == device
    }

    /// Returns the mountpoint of a view, or nil if it does not match.
    private func place(of view: ViewName) -> [UInt8]? {
        shown.mountpoint(of: view).map { CanonicalPath.join(mountpoint.path, $0.bytes) }
    }

    // MARK: the end

    /// Ends the views' daemons, which withdraw everything first, and then the mountpoints' daemon. Mounts that another process has made at
    /// the same places stay, unless they stand on the mountpoints of this one.
    private func end() {
        let records = (try? store.mounts()) ?? []
        let isStanding = own.map { own in records.contains { $0.id == own } } ?? false
        daemons.end(
            records.filter { record in
                mounted.contains(record.id) || (isStanding && record.shown.onlyView.flatMap(place) == record.mountpoint)
            })
        daemons.end(records.filter { $0.id == own })
    }

    /// Whether the mount of the mountpoints is gone, so that its daemon has ended in good order.
    private func isUnmounted(_ device: DeviceNumber?) -> Bool {
        guard let entry = try? mountpoint.mounted(), let device else { return true }
        return entry.device != device
    }

    /// The daemon of the mountpoints is dead, and no view can be reached below them any more. Takes everything away, and returns the exit
    /// status of a failure, so that a service manager mounts again.
    private func die(with own: MountRecord) -> Int32 {
        let error = GrantError(
            .mountFailed, "the \(shown.description) are not mounted any more", cause: "the daemon of \(mountpoint.shown) has died",
            advice: "mount them again: grantfs mount --views")
        SystemLog.write(.error, Terminal.visible(error.description))
        ServiceManager.stopping()
        end()
        // With the views on it.
        if !isUnmounted(own.connection?.device) { try? mountpoint.unmount(lazy: true) }
        return error.exitStatus
    }
}
