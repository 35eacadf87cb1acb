import GrantCommandLine
import GrantConfinement
import Glibc
import GrantModel
import GrantSystem

/// The rights that the daemon gives up. An attacker that found a fault in it could then do what a
/// file server does, and nothing else.
enum Confinement {
    /// Call it before the first thread is made, and after the steps that need more rights.
    static func giveUpCapabilities() {
        do throws(Errno) {
            try Capabilities.keep(Capabilities.ofDaemon)
        } catch {
            Terminal.note("the daemon keeps the capabilities it was started with: \(error)")
        }
    }

    /// For a process that needs nothing but what it has open.
    static func giveUpEverything() {
        // Best effort: its messages have no reader, and it has nothing that others could reach.
        try? Capabilities.keep([])
        try? SystemCallFilter.install(.error)
    }

    /// Call it once the filesystem is mounted: a user's mount is made by a program with set-id
    /// bits, which this process cannot start from then on.
    static func filterCalls(_ options: MountOptions) {
        do throws(Errno) {
            try SystemCallFilter.install(InjectedFault.endAtCalls.isPresent ? .end : .error, copiesMounts: options.owners != nil)
        } catch {
            Terminal.note("the daemon may make any system call: \(error)")
        }
    }
}
