import GrantStore
import GrantSystem

extension MountRecord {
    /// Cuts the connection of a daemon that serves nobody any more and cannot go: a thread of it stands in a call which no signal ends, and
    /// keeps /dev/fuse open. Whoever uses the mount would wait for as long as that lasts, and gets ENOTCONN instead. Nothing happens for any
    /// other daemon.
    ///
    /// Best effort: root may, and where fusectl is mounted the user who mounted.
    ///
    /// `store`: where it is on record. Another daemon may have taken the mount over since this record was read; it was on record before the old one ended.
    public func cutIfOver(in store: GrantStore) {
        guard isOver(in: store.runDirectory), let now = try? store.mounts() else { return }
        cutIfOver(now, in: store.runDirectory)
    }

    /// `now`: the records, read after the daemon had ended.
    func cutIfOver(_ now: [MountRecord], in directory: String) {
        guard let connection, isOver(in: directory), now.contains(where: { $0.id == id && $0.process == process }) else { return }
        try? connection.abort()
    }
}
