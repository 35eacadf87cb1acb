import GrantStore
import GrantSystem

extension MountRecord {
    /// Aborts the FUSE connection of a defunct daemon: one that serves no more requests but cannot
    /// exit, because a thread is in a system call that no signal ends, and keeps /dev/fuse open.
    /// Without that, users of the mount would block. Now they get ENOTCONN. It does nothing for
    /// other daemons.
    ///
    /// Best effort: root may do it, and where fusectl is mounted, the user who mounted.
    ///
    /// `store` is read again: another daemon, which was recorded before the old one ended, may have
    /// taken the mount over.
    public func abortIfDefunct(in store: GrantStore) {
        guard isDefunct(in: store.runDirectory), let now = try? store.mounts() else { return }
        abortIfDefunct(now, in: store.runDirectory)
    }

    /// `now`: the records, read after the daemon's end.
    func abortIfDefunct(_ now: [MountRecord], in directory: String) {
        guard let connection, isDefunct(in: directory), now.contains(where: { $0.id == id && $0.process == process }) else { return }
        try? connection.abort()
    }
}
