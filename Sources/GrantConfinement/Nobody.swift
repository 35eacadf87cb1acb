import CGrantSystem
import GrantSystem

/// Drops all privileges of a process that needs none.
public enum Nobody {
    /// Drops root, its groups and its capabilities irrevocably. A process of another user keeps
    /// that user, and can gain no rights by exec. Call it before there is a second thread.
    public static func become() throws(Errno) { _ = try Errno.check(clinux_become_nobody()) }
}
