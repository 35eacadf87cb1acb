import GrantStore
import LinuxFS

extension MountRecord {
    /// Cuts the connection of a daemon that serves nobody any more and cannot go: a thread of it stands in a call which no signal ends, and
    /// keeps /dev/fuse open. Whoever uses the mount would wait for as long as that lasts, and gets ENOTCONN instead. Nothing happens for any
    /// other daemon.
    ///
    /// Best effort: root may, and where fusectl is mounted the user who mounted.
    public func cutIfOver() {
        guard let connection, process.isOver else { return }
        try? connection.abort()
    }
}
