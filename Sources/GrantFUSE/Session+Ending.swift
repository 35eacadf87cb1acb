import CGrantFUSE
import CGrantSystem
import Glibc
import GrantSystem

extension Session {
    /// Closes the connection. It must be the process's last use of it.
    ///
    /// Waiting and later requests fail with ENOTCONN as soon as the workers have ended. Otherwise
    /// the kernel keeps the connection for as long as one thread of the process hangs in a granted
    /// filesystem, and every request hangs as well. The descriptor number never becomes another
    /// file, because workers may be using it.
    public func hangUp() {
        let nothing = clinux_open_nothing()
        if nothing >= 0 { _ = clinux_replace(fuse_session_fd(pointer), nothing) }
    }
}
