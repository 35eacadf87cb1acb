import Glibc
import GrantModel
import GrantStore
import LinuxFS

/// A place where a view is or can be mounted.
public struct Mountpoint: Sendable {
    /// Absolute, canonical.
    public let path: [UInt8]

    /// Links are followed. Only what lies above the mountpoint is looked at: what is mounted there may not answer.
    public init(_ given: [UInt8]) throws(GrantError) {
        do {
            path = try Mountpoint.resolve(given, links: 40)
        } catch {
            throw Mountpoint.refusal(given, error)
        }
    }

    private static func resolve(_ given: [UInt8], links: Int) throws(Errno) -> [UInt8] {
        let path = try CanonicalPath.resolveAbove(given)
        // A mountpoint is a directory; the kernel says so from memory.
        guard let target = try? CanonicalPath.target(of: path) else { return path }
        if links == 0 { throw Errno(ELOOP) }
        let directory = path.lastIndex(of: 0x2F).map { Array(path[..<$0]) } ?? []
        return try resolve(target.first == 0x2F ? target : directory + [0x2F] + target, links: links - 1)
    }

    public var shown: String { String(decoding: path, as: UTF8.self) }

    /// The topmost mount exactly here.
    public func mounted() throws(GrantError) -> MountEntry? {
        try Placement.currentTable().entry(mountpoint: path)
    }

    /// Makes sure that a view can be mounted here. A dead mount of a view of this store is cleaned away first, and `cleaned`
    /// is told so. `.mountFailed` with the reason for everything else that stands in the way; nothing is changed then.
    public func prepare(
        for view: ViewName, store: GrantStore, lookout: Lookout = .here, cleaned: (String) -> Void
    ) throws(GrantError) {
        while let entry = try mounted() {
            guard entry.type == GrantAdministrator.filesystemType else {
                throw problem("something of type \(entry.type) is mounted there already")
            }
            try clean(entry, view, store, cleaned)
        }
        try requireEmpty()
        let administrator = GrantAdministrator(store: store, lookout: lookout)
        try Placement(store: store).check(mountpoint: path, grants: try administrator.list())
    }

    /// Unmounts what is here, as `fusermount3 -u` and `umount` do. `.mountFailed` when it is busy or not a view.
    public func unmount(lazy: Bool = false) throws(GrantError) {
        if geteuid() == 0 {
            do {
                try Unmount.unmount(path, lazy: lazy)
            } catch {
                let isBusy = error == Errno(EBUSY)
                throw GrantError(
                    .mountFailed, "\(shown) cannot be unmounted", cause: isBusy ? "it is in use" : error.description,
                    advice: isBusy ? "grantfs status names who uses it" : nil)
            }
            return
        }
        let arguments = ["fusermount3", "-u"] + (lazy ? ["-z"] : []) + ["--"]
        do {
            let child = try ChildProcess.spawn(
                ProgramSearch.mountHelper ?? "fusermount3", arguments: arguments.map { Array($0.utf8) } + [path])
            if try ChildProcess.wait(child) == 0 { return }
        } catch {
            throw GrantError(
                .mountFailed, "\(shown) cannot be unmounted", cause: "fusermount3: \(error)", advice: "install the package fuse3")
        }
        throw GrantError(
            .mountFailed, "\(shown) cannot be unmounted", cause: "fusermount3 refused", advice: "grantfs status names its users")
    }

    private func clean(
        _ entry: MountEntry, _ view: ViewName, _ store: GrantStore, _ cleaned: (String) -> Void
    ) throws(GrantError) {
        let records = try store.mounts().filter { $0.mountpoint == path }
        // A daemon that was killed takes a moment to end, and its mount is dead before.
        if records.contains(where: { $0.process.isRunning }), !isDead() {
            throw problem("a view of this store is mounted there already", advice: "grantfs unmount takes it away")
        }
        // A daemon that was killed before it was recorded leaves the view's name as the only trace.
        let isOurs = !records.isEmpty || entry.source == Array(view.description.utf8)
        guard isOurs, isDead() else { throw problem("a view is mounted there already", advice: "grantfs unmount takes it away") }
        try unmount(lazy: true)
        for record in records { try store.forget(record) }
        cleaned("cleaned away the dead mount at \(shown)")
    }

    /// Whether the kernel answers ENOTCONN. The directory is opened, because its attributes may be kept. It is asked from a thread of its own, because a daemon that hangs never answers.
    func isDead() -> Bool {
        let path = path
        let answer = Lock<Int32?>(nil)
        let work: @Sendable () -> Void = {
            let opened = withCString(path) { open($0, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW) }
            let result = opened < 0 ? errno : 0
            if opened >= 0 { close(opened) }
            answer.withLock { $0 = result }
        }
        guard let thread = try? WorkerThread.start("probe", work) else { return false }
        thread.detach()
        for _ in 0..<200 {
            if let result = answer.withLock({ $0 }) { return result == ENOTCONN || result == ECONNABORTED }
            usleep(10_000)
        }
        return false
    }

    private func requireEmpty() throws(GrantError) {
        guard let stream = withCString(path, { opendir($0) }) else { throw Mountpoint.refusal(path, Errno(errno)) }
        defer { closedir(stream) }
        var count = 0
        while readdir(stream) != nil { count += 1 }
        if count > 2 { throw problem("it is not empty", advice: "choose an empty directory") }
    }

    private func problem(_ cause: String, advice: String? = nil) -> GrantError {
        GrantError(.mountFailed, "\(shown) cannot be a mountpoint", cause: cause, advice: advice)
    }

    private static func refusal(_ path: [UInt8], _ error: Errno) -> GrantError {
        let cause =
            switch error.rawValue {
            case ENOENT: "there is no such directory"
            case ENOTDIR: "it is not a directory"
            default: error.description
            }
        let advice = error == Errno(ENOENT) ? "make it with mkdir" : nil
        return GrantError(
            .mountFailed, "\(String(decoding: path, as: UTF8.self)) cannot be a mountpoint", cause: cause, advice: advice)
    }
}
