import CGrantSystem
import GrantSystem

/// What a process gives up that needs nothing of whoever started it.
public enum Nobody {
    /// Takes root, its groups and its capabilities from this process, for good. One that is not root's keeps its user, and can get no more rights by an exec. To be
    /// called before there is a second thread.
    public static func become() throws(Errno) { _ = try Errno.check(clinux_become_nobody()) }
}
