import CGrantFUSE
import CGrantSystem
import Glibc
import GrantSystem

extension Session {
    /// Gives up the connection, as the last thing that this process does with it: whoever waits for an answer, and whoever asks from then on, gets
    /// ENOTCONN as soon as the workers have ended. Without it the kernel keeps the connection for as long as one thread of the process hangs in a granted
    /// filesystem, and whatever is asked of it hangs as well. The number never stands for anything else: workers may be using it.
    public func hangUp() {
        let nothing = clinux_open_nothing()
        if nothing >= 0 { _ = clinux_replace(fuse_session_fd(pointer), nothing) }
    }
}
