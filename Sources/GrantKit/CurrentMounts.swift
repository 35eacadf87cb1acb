import Glibc
import GrantModel
import GrantSystem

/// The mounts that this process sees. The kernel's table is read again only when the kernel says that it has changed.
///
/// Locking: one lock around the table, held while it is read, which waits for no filesystem.
enum CurrentMounts {
    private struct State {
        var watch: Watch?
        var seen: Surroundings?
        var table: MountTable?
        var generation: UInt64 = 0
    }

    private final class Watch: Sendable {
        let watch: MountWatch
        init() throws(Errno) { watch = try MountWatch() }
    }

    /// What the table depends on beside the mounts: the namespace and the root directory of this process.
    private struct Surroundings: Equatable {
        let namespace: ino_t
        let (device, root): (dev_t, ino_t)

        init?() {
            var (namespace, root) = (stat(), stat())
            guard stat("/proc/self/ns/mnt", &namespace) == 0, stat("/", &root) == 0 else { return nil }
            (self.namespace, device, self.root) = (namespace.st_ino, root.st_dev, root.st_ino)
        }
    }

    private static let state = Lock(State())

    /// Returns the mounts, and a number that is another one after each change. Throws `.system` if
    /// they cannot be read.
    static func current() throws(GrantError) -> (table: MountTable, generation: UInt64) {
        do throws(Errno) {
            return try state.withLock { state throws(Errno) in
                let seen = Surroundings()
                // Asked first: a mount made while the table is read shows at the next call.
                let hasChanged = state.watch?.watch.changed(within: 0) ?? true
                if let table = state.table, !hasChanged, seen != nil, seen == state.seen { return (table, state.generation) }
                // Without a watch every call reads.
                if state.watch == nil || seen != state.seen { state.watch = try? Watch() }
                let table = try MountTable.current()
                (state.table, state.seen) = (table, seen)
                state.generation &+= 1
                return (table, state.generation)
            }
        } catch {
            throw GrantError(.system, "the mount table cannot be read", cause: error.description)
        }
    }
}
