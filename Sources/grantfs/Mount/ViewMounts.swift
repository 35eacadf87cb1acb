import Glibc
import GrantAdministration
import GrantControl
import GrantModel
import GrantStore
import GrantSystem

/// The process behind `grantfs mount --views PATTERN -o separate`. It starts one daemon that shows a mountpoint for each matching view, and
/// one daemon for each of these views, which mounts it there.
///
/// It serves no mount itself and finds its daemons in the store's records of mounts. So it also finds a successor, after `grantfs upgrade` or
/// with `-o recover`. It mounts a view again that has a grant and is not mounted.
final class ViewMounts {
    private let store: GrantStore
    private let shown: ShownViews
    private let mountpoint: Mountpoint
    /// The options of `mount -o`, for the mountpoints' daemon and for those of views.
    private let (ownOptions, viewOptions): (String, String)
    private let isPrivate: Bool
    /// The earliest time (`Clock.monotonic`) to mount a view after a failure, or after somebody unmounted it.
    private var notBefore: [ViewName: Int64] = [:]
    private var seen: Set<ViewName> = []

    /// The interval at which the store is polled, in nanoseconds.
    private static let interval = 100_000_000
    /// The delay before the next attempt after a failure, or after somebody unmounted the view: nanoseconds.
    private static let retryDelay: Int64 = 3_000_000_000
    /// The time-out for the end of the daemons, in seconds.
    private static let endTimeout = 12.0

    /// `options`: the parsed options; `lists`: the values of `-o` as they were typed, for the views' daemons.
    init(store: GrantStore, shown: ShownViews, mountpoint: Mountpoint, options: MountOptions, lists: [String]) {
        (self.store, self.shown, self.mountpoint) = (store, shown, mountpoint)
        // fusermount3 refuses a mountpoint on a read-only mount. This one has no file that could be written.
        var own = options.words.filter { $0 != "ro" }
        // fusermount3 runs as root, which the kernel refuses in a user's FUSE filesystem without allow_other (fs/fuse/dir.c,
        // fuse_allow_current_process). The mode of the mountpoints keeps other users out.
        isPrivate = geteuid() != 0 && !options.allowOther
        if isPrivate { own.append("allow_other") }
        ownOptions = own.joined(separator: ",")
        viewOptions = lists.map { MountOptionParser.removing(["views", "separate", "new"], from: $0) }.joined(separator: ",")
    }

    /// Mounts, and returns the exit status when the mount is gone or a signal has come. Calls `ready` once: with nil when every view that has
    /// a grant is mounted, or with the error when nothing is.
    func run(ready: (GrantError?) -> Void) -> Int32 {
        var signals = sigset_t()
        sigemptyset(&signals)
        for number in [SIGTERM, SIGINT, SIGHUP] { sigaddset(&signals, number) }
        pthread_sigmask(SIG_BLOCK, &signals, nil)
        do throws(GrantError) {
            guard
                try start(
                    words(["--mountpoints"] + (isPrivate ? ["--private"] : []), ownOptions, shown.label.description, mountpoint.path)),
                try mountMissing()
            else {
                throw GrantError(
                    .mountFailed, "the \(shown.description) cannot be mounted", cause: "what one of its mounts has said is above",
                    advice: isPrivate ? "users need user_allow_other in /etc/fuse.conf for it (grantfs doctor looks)" : nil)
            }
        } catch {
            end()
            ready(error)
            return error.exitStatus
        }
        ready(nil)
        ServiceManager.ready("\(shown.description) mounted at \(mountpoint.shown)")
        var version: Int64?
        var (next, time) = (Clock.monotonic, timespec(tv_sec: 0, tv_nsec: Self.interval))
        while sigtimedwait(&signals, nil, &time) < 0 {
            ChildProcess.reap()
            // If the store cannot be read, the daemons refuse everything, and it is tried again.
            let now = try? store.dataVersion()
            if now == version, Clock.monotonic < next { continue }
            (version, next) = (now, Clock.monotonic + 1_000_000_000)
            if let records = try? store.mounts() {
                guard let own = own(in: records) else { break }
                // Otherwise it reads the store only once a second.
                _ = try? ControlClient.ask(
                    .apply(grants: [], timeoutMilliseconds: 1000), socket: own.socket, directory: store.runDirectory,
                    deadline: Clock.deadline(seconds: 1))
            }
            _ = try? mountMissing()
        }
        ServiceManager.stopping()
        end()
        return 0
    }

    // MARK: mounting

    /// Mounts the views that have a grant and are not mounted. Returns false if one failed.
    @discardableResult
    private func mountMissing() throws(GrantError) -> Bool {
        var isDone = true
        let records = try store.mounts()
        for view in try store.views() {
            guard let place = place(of: view) else { continue }
            if records.contains(where: { $0.mountpoint == place && $0.process.isRunning }) {
                seen.insert(view)
                continue
            }
            if seen.remove(view) != nil { notBefore[view] = Clock.monotonic + Self.retryDelay }
            if Clock.monotonic < notBefore[view] ?? 0 { continue }
            if try start(words(["--new", "--below"], viewOptions, view.description, place)) {
                seen.insert(view)
            } else {
                isDone = false
                notBefore[view] = Clock.monotonic + Self.retryDelay
                SystemLog.write(
                    .warning, Terminal.visible("the view “\(view)” could not be mounted below \(mountpoint.shown); it is tried again"))
            }
        }
        return isDone
    }

    /// Starts a daemon and returns whether its mount answers. The daemon reports errors on standard error.
    private func start(_ words: [[UInt8]]) throws(GrantError) -> Bool {
        do throws(Errno) {
            return try BackgroundStart.run(words: words) == 0
        } catch {
            throw GrantError(.mountFailed, "a daemon cannot be started", cause: error.description)
        }
    }

    private func words(_ flags: [String], _ options: String, _ name: String, _ place: [UInt8]) -> [[UInt8]] {
        let words = ["grantfs", "mount", "--store", store.directory] + flags + (options.isEmpty ? [] : ["-o", options]) + ["--", name]
        return words.map { Array($0.utf8) } + [place]
    }

    /// The mountpoint of a view; nil if it does not match.
    private func place(of view: ViewName) -> [UInt8]? {
        shown.mountpoint(of: view).map { CanonicalPath.join(mountpoint.path, $0.bytes) }
    }

    private func own(in records: [MountRecord]) -> MountRecord? {
        records.last { $0.mountpoint == mountpoint.path && $0.shown == shown && $0.process.isRunning }
    }

    // MARK: the end

    /// Ends the views' daemons, which withdraw everything first, and then the mountpoints' daemon.
    private func end() {
        let records = (try? store.mounts()) ?? []
        end(records.filter { record in record.shown.onlyView.flatMap(place) == record.mountpoint })
        end(records.filter { $0.mountpoint == mountpoint.path && $0.shown == shown })
    }

    private func end(_ records: [MountRecord]) {
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
