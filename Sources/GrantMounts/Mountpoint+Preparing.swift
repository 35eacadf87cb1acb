import Glibc
import GrantModel
import GrantStore
import GrantSystem

extension Mountpoint {
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
                throw problem("a dead mount of type \(entry.type) is there", advice: "\(command) \(shown) removes it")
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

    private func clean(
        _ entry: MountEntry, _ view: ViewName, _ store: GrantStore, _ cleaned: (String) -> Void
    ) throws(GrantError) {
        guard let mount = try? identity() else { throw problem("the mount there cannot be inspected") }
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
}
