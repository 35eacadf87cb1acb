import Glibc
import GrantModel
import GrantStore
import GrantSystem

/// A path where a view is or can be mounted.
public struct Mountpoint: Sendable {
    /// Absolute, canonical.
    public let path: [UInt8]

    /// Resolves links. It inspects only the directories above the mountpoint: the mounted
    /// filesystem may hang.
    public init(_ given: [UInt8]) throws(GrantError) {
        do {
            path = try Mountpoint.resolve(given, links: 40)
        } catch {
            throw Mountpoint.refusal(given, error)
        }
    }

    /// Takes a path that was resolved before.
    public init(canonical path: [UInt8]) { self.path = path }

    private static func resolve(_ given: [UInt8], links: Int) throws(Errno) -> [UInt8] {
        let path = try CanonicalPath.resolveAbove(given)
        // A mountpoint is a directory. The kernel knows that without asking the daemon.
        guard let target = try? CanonicalPath.target(of: path) else { return path }
        if links == 0 { throw Errno(ELOOP) }
        let directory = path.lastIndex(of: 0x2F).map { Array(path[..<$0]) } ?? []
        return try resolve(target.first == 0x2F ? target : directory + [0x2F] + target, links: links - 1)
    }

    /// Changes the flags of the topmost view here.
    public func remount(_ options: MountOptions) throws(Errno) {
        let root = try FileDescriptor.openWithoutLinks(path)
        guard try MountIdentity(of: root).isSame(as: try identity()) else { throw Errno(EINVAL) }
        try MountIdentity.remount(
            root, readOnly: options.readOnly, setID: options.allowSetID, devices: options.allowDevices, noExecute: options.noExecute,
            noAccessTime: options.noAccessTime, noDirectoryAccessTime: options.noDirectoryAccessTime)
    }

    public var shown: String { String(decoding: path, as: UTF8.self) }

    /// Returns the topmost mount exactly here.
    public func mounted() throws(GrantError) -> MountEntry? {
        try LoopCheck.currentTable().entry(mountpoint: path)
    }

    /// Makes sure that a view can be mounted here. Cleans up a dead mount of a view of this store
    /// first, and calls `cleaned`. It throws `.mountFailed` with the reason for any other obstacle,
    /// and then nothing is changed.
    ///
    /// `isTemporary`: it belongs to a `TemporaryMount`. That is in the store's directory, which no grant may contain or lie in, so the
    /// recorded paths of grants are used: no directory and no other mount is asked, and none that hangs can block it.
    /// `below`: it has to be the mountpoint that the mount of several views with this id has for this one.
    public func prepare(
        for shown: ShownViews, store: GrantStore, probe: DirectoryProbe = .inProcess, isTemporary: Bool = false, below: GrantID? = nil,
        cleaned: (String) -> Void
    ) throws(GrantError) {
        while let entry = try mounted() {
            guard entry.type == GrantAdministrator.filesystemType else {
                guard isDead() else { throw problem("something of type \(entry.type) is mounted there already") }
                let command = geteuid() == 0 ? "umount -l" : "fusermount3 -u -z"
                throw problem("what is left of a mount of type \(entry.type) is there", advice: "\(command) \(shown) takes it away")
            }
            try clean(entry, shown.label, store, cleaned)
        }
        try requireEmpty()
        let administrator = GrantAdministrator(store: store, probe: probe)
        let grants =
            isTemporary
            ? try store.grants().filter { $0.state(at: GrantAdministrator.now) == .active }.map { (name: $0.name, path: $0.bookmark.path) }
            : try administrator.list().map { (name: $0.grant.name, path: $0.path) }
        try LoopCheck(store: store).check(mountpoint: path, for: shown, below: below, grants: grants)
    }

    /// Unmounts the topmost view here, as `fusermount3 -u` and `umount` do. Throws `.mountFailed`
    /// if it is busy or not a view.
    public func unmount(lazy: Bool = false) throws(GrantError) {
        do throws(Errno) {
            try unmount(try identity(), lazy: lazy)
        } catch {
            let isBusy = error == Errno(EBUSY)
            throw GrantError(
                .mountFailed, "\(shown) cannot be unmounted", cause: isBusy ? "it is in use" : error.description,
                advice: isBusy
                    ? "grantfs status names who uses it"
                    : error == Errno(ENOENT) && geteuid() != 0 ? "users need fusermount3, of the package fuse3" : nil)
        }
    }

    /// Returns the identity of the topmost view here. EINVAL if there is none, ELOOP if a link has come into the path.
    func identity() throws(Errno) -> MountIdentity {
        let identity = try MountIdentity(of: try FileDescriptor.openWithoutLinks(path))
        guard let entry = identity.entry(in: try MountTable.current()), entry.mountpoint == path,
            entry.type == GrantAdministrator.filesystemType
        else { throw Errno(EINVAL) }
        return identity
    }

    /// Unmounts that mount and no other. For unprivileged users it uses the path, which it compares
    /// right before. fusermount3 unmounts only FUSE mounts of the same user.
    public func unmount(_ mount: MountIdentity, lazy: Bool) throws(Errno) {
        if geteuid() == 0 {
            if lazy { return try mount.detach() }
            let parent = try FileDescriptor.openWithoutLinks(CanonicalPath.parent(of: path))
            return try mount.unmount(in: parent, name: CanonicalPath.lastName(of: path))
        }
        guard let entry = mount.entry(in: try MountTable.current()) else {
            if lazy { return }
            throw Errno(EINVAL)
        }
        guard try MountIdentity(of: try FileDescriptor.openWithoutLinks(entry.mountpoint)).isSame(as: mount) else { throw Errno(EBUSY) }
        let arguments = ["fusermount3", "-u"] + (lazy ? ["-z"] : []) + ["--"]
        let child = try ChildProcess.spawn(
            ProgramSearch.mountHelper ?? "fusermount3", arguments: arguments.map { Array($0.utf8) } + [entry.mountpoint])
        // It has printed why.
        if try ChildProcess.wait(child) != 0 { throw Errno(EBUSY) }
    }

    private func clean(
        _ entry: MountEntry, _ view: ViewName, _ store: GrantStore, _ cleaned: (String) -> Void
    ) throws(GrantError) {
        guard let mount = try? identity() else { throw problem("what is mounted there cannot be looked at") }
        let records = try store.mounts().filter { $0.mountpoint == path }
        // A killed daemon takes a moment to end, and its mount is dead before.
        let isServed = records.contains { record in
            record.isServed(in: store.runDirectory) && (record.connection.map { $0.device == entry.device } ?? true)
        }
        // A defunct daemon may keep /dev/fuse open, without answering.
        for record in records { record.abortIfDefunct(in: store) }
        let isDefunct = records.contains { record in
            record.isDefunct(in: store.runDirectory) && (record.connection.map { $0.device == entry.device } ?? true)
        }
        if isServed, !isDead() {
            throw problem("a view of this store is mounted there already", advice: "grantfs unmount takes it away")
        }
        // If the daemon was killed before it was recorded, the view's name is the only trace.
        let isOurs =
            records.contains { $0.connection.map { $0.device == entry.device } ?? true } || entry.source == Array(view.description.utf8)
        guard isOurs, isDead(ifSilent: isDefunct && !isServed) else {
            throw problem("a view is mounted there already", advice: "grantfs unmount takes it away")
        }
        do throws(Errno) {
            try unmount(mount, lazy: true)
        } catch {
            throw problem("the dead mount there cannot be taken away: \(error)")
        }
        // If something of the mount is held, it stays on record, and so does a mount that was detached while its daemon runs.
        let left = try store.deadMounts(of: records.filter { !$0.isServed(in: store.runDirectory) }, until: Clock.deadline(seconds: 5))
        for deadMounts in left { if let explanation = deadMounts.explanation { cleaned("\(shown): \(explanation)") } }
        cleaned("cleaned away the dead mount at \(shown)")
    }

    /// Whether the kernel answers ENOTCONN, or `ifSilent` if there is no answer within two seconds.
    /// It opens the directory, because attributes may be cached, and does so on a thread of its
    /// own, because a daemon that hangs never answers.
    func isDead(ifSilent: Bool = false) -> Bool {
        let path = path
        let answer = Lock<Int32?>(nil)
        let work: @Sendable () -> Void = {
            let opened = withCString(path) { open($0, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW) }
            var result = opened < 0 ? errno : 0
            // The open may succeed without asking the daemon.
            if opened >= 0 { result = FileDescriptor(owning: opened).freshStatusError }
            answer.withLock { $0 = result }
        }
        guard let thread = try? WorkerThread.start("probe", work) else { return false }
        thread.detach()
        for _ in 0..<200 {
            if let result = answer.withLock({ $0 }) { return result == ENOTCONN || result == ECONNABORTED }
            usleep(10_000)
        }
        return ifSilent
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
        let advice = error == Errno(ENOENT) ? UnexpandedHome.advice(for: path) ?? "make it with mkdir" : nil
        return GrantError(
            .mountFailed, "\(String(decoding: path, as: UTF8.self)) cannot be a mountpoint", cause: cause, advice: advice)
    }
}
