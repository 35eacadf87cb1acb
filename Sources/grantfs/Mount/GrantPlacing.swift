import Glibc
import GrantModel
import GrantStore
import GrantSystem
import GrantViewFS

/// Mounts a grant's directory on its mountpoint, on a thread of its own: the daemons may hang, and then it is left behind.
final class GrantPlacing: Sendable {
    private let result = Lock<Result<BoundDirectory, Errno>?>(nil)

    /// What was mounted; nil if nothing was, or is not yet.
    var directory: BoundDirectory? { try? result.withLock { $0 }?.get() }
    var failure: Errno? { if case .failure(let error) = result.withLock({ $0 }) { error } else { nil } }

    /// `node`: what the grant's name leads to in the mount of its mode; another directory is not mounted. `main`: the mount with the
    /// mountpoint. Fails with ESTALE when one of them has changed.
    init(_ wanted: WantedGrant, _ node: FUSENode, on main: MountRecord) {
        let work: @Sendable () -> Void = { [self] in
            let made = GrantPlacing.mount(wanted, node, on: main)
            result.withLock { $0 = made }
        }
        do throws(Errno) {
            try WorkerThread.start("grantfs-place", work).detach()
        } catch {
            result.withLock { $0 = .failure(error) }
        }
    }

    private static func mount(_ wanted: WantedGrant, _ node: FUSENode, on main: MountRecord) -> Result<BoundDirectory, Errno> {
        let name = wanted.grant.name.bytes
        do throws(Errno) {
            let source = try FileDescriptor.openWithoutLinks(wanted.part.mountpoint)
            let target = try FileDescriptor.openWithoutLinks(main.mountpoint)
            // Another mount may have come to one of the places.
            guard try MountIdentity(of: source).device == wanted.part.connection?.device,
                try MountIdentity(of: target).device == main.connection?.device
            else { throw Errno(ESTALE) }
            // The kernel may still have the name of what was shown here before.
            let place = try FileDescriptor.openAt(target.number, name, OpenFlags.path | O_DIRECTORY | O_NOFOLLOW)
            guard try MountIdentity(of: place).device == main.connection?.device,
                VirtualDirectories.isVirtual(inode: UInt64(truncatingIfNeeded: try place.status().st.st_ino))
            else { throw Errno(ESTALE) }
            return .success(try BoundDirectory(name, node, of: source, on: place, readOnly: wanted.grant.access == .readOnly))
        } catch {
            return .failure(error)
        }
    }
}
