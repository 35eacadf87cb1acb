import CGrantSystem
import Glibc
import GrantSystem

/// Capabilities, capabilities(7), by their numbers.
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
    case sysResource = 24
    case mknod = 27
    case lease = 28
}

/// What is left to a daemon that was started with more.
public enum Capabilities {
    /// What a file server acts with for its callers, as far as the kernel in front found them to be allowed: owners, modes, special files, flags,
    /// reserved blocks; callers' identities; and opening by handle.
    public static let ofWorkers: Set<Capability> = Set(Capability.allCases).subtracting([.sysAdmin])
    /// The same, and what mounting, unmounting and watching a whole filesystem take.
    public static let ofDaemon: Set<Capability> = Set(Capability.allCases)

    /// Leaves the calling thread, and those that it makes from now on, what is in `kept` of what it has, for good. Nothing is gained by a
    /// thread that has none. Rests on capset(2) and prctl(2), PR_CAPBSET_DROP.
    public static func keep(_ kept: Set<Capability>) throws(Errno) {
        let mask = kept.reduce(UInt64(0)) { $0 | 1 << $1.rawValue }
        let result = clinux_capabilities_keep(mask)
        if result < 0 { throw Errno(-result) }
    }
}
