import Glibc
import GrantAdministration
import GrantControl
import GrantModel
import GrantStore
import GrantSystem

/// The process behind `grantfs mount --views PATTERN -o separate`: starts a daemon that shows a mountpoint for each view that matches, and a daemon for each view, mounted there.
///
/// It serves no mount itself and keeps no state: which daemons there are it reads from the store's records of mounts, so one that was replaced by `grantfs upgrade` or followed
/// with `-o recover` counts as well. A view that is not mounted though it has a grant is mounted again.
final class ViewMounts {
    private let store: GrantStore
    private let shown: ShownViews
    private let mountpoint: Mountpoint
    /// The options of `mount -o`, for the mountpoints' daemon and for those of views.
    private let (ownOptions, viewOptions): (String, String)
    private let isPrivate: Bool
    /// `Clock.monotonic` from which on a view may be mounted: after a failure, and for a while after somebody has unmounted it.
    private var notBefore: [ViewName: Int64] = [:]
    private var seen: Set<ViewName> = []

    /// How often the store is looked at, in nanoseconds.
    private static let interval = 100_000_000
    /// How long a view stays unmounted that could not be mounted, or that was unmounted by itself; nanoseconds.
    private static let pause: Int64 = 3_000_000_000
    /// How long the daemons may take to end, in seconds.
    private static let patience = 12.0

    /// `options`: what the daemons are given; `lists`: the values of `-o` as they were typed.
    init(store: GrantStore, shown: ShownViews, mountpoint: Mountpoint, options: MountOptions, lists: [String]) {
        (self.store, self.shown, self.mountpoint) = (store, shown, mountpoint)
        // fusermount3 mounts on nothing that is read-only; there is nothing to be written anyway.
        var own = options.words.filter { $0 != "ro" }
        // fusermount3 is another user's process, whom the kernel lets into no FUSE filesystem without this (fs/fuse/dir.c, fuse_allow_current_process). By their mode the mountpoints
        // are the user's alone.
        isPrivate = geteuid() != 0 && !options.allowOther
        if isPrivate { own.append("allow_other") }
        ownOptions = own.joined(separator: ",")
        viewOptions = lists.map { MountOptionParser.removing(["views", "separate", "new"], from: $0) }.joined(separator: ",")
    }

    /// Mounts, and returns when the mount has been taken away or a signal has come, with the exit status. `ready` is called once: with nil when every view that has a grant is
    /// mounted, or with the error; nothing is mounted then.
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
            // A store that cannot be read now is tried again; the daemons refuse everything meanwhile.
            let now = try? store.dataVersion()
            if now == version, Clock.monotonic < next { continue }
            (version, next) = (now, Clock.monotonic + 1_000_000_000)
            if let records = try? store.mounts() {
                guard let own = own(in: records) else { break }
                // It looks at the store once a second by itself.
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

    /// Returns whether each view that was to be mounted now is.
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
            if seen.remove(view) != nil { notBefore[view] = Clock.monotonic + Self.pause }
            if Clock.monotonic < notBefore[view] ?? 0 { continue }
            if try start(words(["--new", "--below"], viewOptions, view.description, place)) {
                seen.insert(view)
            } else {
                isDone = false
                notBefore[view] = Clock.monotonic + Self.pause
                SystemLog.write(
                    .warning, Terminal.visible("the view “\(view)” could not be mounted below \(mountpoint.shown); it is tried again"))
            }
        }
        return isDone
    }

    /// Starts a daemon; whether its mount answers. What is wrong it says on standard error.
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

    /// Where a view is mounted; nil for one that does not match.
    private func place(of view: ViewName) -> [UInt8]? {
        shown.mountpoint(of: view).map { CanonicalPath.join(mountpoint.path, $0.bytes) }
    }

    private func own(in records: [MountRecord]) -> MountRecord? {
        records.last { $0.mountpoint == mountpoint.path && $0.shown == shown && $0.process.isRunning }
    }

    // MARK: the end

    /// Tells the views' daemons to end, which withdraws everything first, and then that of the mountpoints.
    private func end() {
        let records = (try? store.mounts()) ?? []
        end(records.filter { record in record.shown.onlyView.flatMap(place) == record.mountpoint })
        end(records.filter { $0.mountpoint == mountpoint.path && $0.shown == shown })
    }

    private func end(_ records: [MountRecord]) {
        // Opened before the look, so that the process which was looked at is the one that is told.
        let processes = Processes(records)
        processes.send(SIGTERM)
        let deadline = Clock.deadline(seconds: Self.patience)
        while !processes.haveEnded, Clock.monotonic < deadline { usleep(5_000) }
        ChildProcess.reap()
    }

    /// Daemons that run.
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
