import CGrantSystem
import Glibc
import GrantSystem

/// Capabilities by number, see capabilities(7).
public enum Capability: UInt64, CaseIterable, Sendable {
    case chown = 0
    case dacOverride = 1
    case dacReadSearch = 2
    case fowner = 3
    case fsetid = 4
    case setgid = 6
    case setuid = 7
    case linuxImmutable = 9
    case sysAdmin = 21
    case sysNice = 23
    case sysResource = 24
    case mknod = 27
    case lease = 28
}

/// The capabilities that a daemon keeps.
public enum Capabilities {
    /// The capabilities that the workers need to act for callers, after the kernel has checked
    /// their permissions: owners, modes, special files, flags, reserved blocks, and the callers'
    /// identities, and opening by handle.
    public static let ofWorkers: Set<Capability> = Set(Capability.allCases).subtracting([.sysAdmin, .sysNice])
    /// Those of the workers, and what mounting, unmounting and watching a whole filesystem need, and
    /// giving the processor to a thread that holds up a withdrawal.
    public static let ofDaemon: Set<Capability> = Set(Capability.allCases)

    /// Reduces the capabilities of the calling thread, and of the threads that it makes from now
    /// on, to those in `kept`, irrevocably. It adds none. It uses capset(2) and prctl(2),
    /// PR_CAPBSET_DROP.
    public static func keep(_ kept: Set<Capability>) throws(Errno) {
        let mask = kept.reduce(UInt64(0)) { $0 | 1 << $1.rawValue }
        let result = clinux_capabilities_keep(mask)
        if result < 0 { throw Errno(-result) }
    }
}
