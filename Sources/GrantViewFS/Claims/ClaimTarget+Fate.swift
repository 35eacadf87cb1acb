import GrantCoordinator
import Glibc
import GrantSystem
import GrantViewTree

extension ClaimTarget {
    /// What has become of it since it was claimed, as far as the files themselves say.
    public enum Fate: Equatable, Sendable {
        /// Nothing stood there, and nothing does.
        case absent
        case appeared
        /// It is where it was; its content may be another one, or another file.
        case present
        case moved(to: [UInt8])
        case removed
    }

    /// Looks at the files, and may wait for their filesystem.
    ///
    /// `wasAbsent`: nothing stood there when the claim was granted, whatever came between.
    public func fate(wasAbsent: Bool) -> Fate {
        guard let name else { return .present }
        if (try? FileDescriptor.openBeneath(directory.number, name, OpenFlags.path | O_NOFOLLOW, crossMounts: crossesMounts)) != nil {
            return wasAbsent ? .appeared : .present
        }
        guard let file, let status = try? file.descriptor.status() else { return wasAbsent ? .absent : .removed }
        // A directory that was removed keeps a link count on some filesystems, and a file may have another name: where it says that it is must be it.
        guard let now = try? file.descriptor.path(), now != path, ClaimTarget.identity(at: now) == ItemID(NodeKey(status)) else {
            return .removed
        }
        return .moved(to: now)
    }

    private static func identity(at path: [UInt8]) -> ItemID? {
        guard let root = try? FileDescriptor.open("/".utf8, OpenFlags.path | O_DIRECTORY),
            let there = try? FileDescriptor.openBeneath(
                root.number, path.drop { $0 == UInt8(ascii: "/") }, OpenFlags.path | O_NOFOLLOW, crossMounts: true),
            let status = try? there.status()
        else { return nil }
        return ItemID(NodeKey(status))
    }
}
