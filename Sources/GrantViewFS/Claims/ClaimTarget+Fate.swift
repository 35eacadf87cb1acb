import GrantCoordinator
import Glibc
import GrantSystem
import GrantViewTree

extension ClaimTarget {
    /// How the target has changed since it was claimed, as far as its files show.
    public enum Fate: Equatable, Sendable {
        /// The target did not exist when it was claimed, and does not exist.
        case absent
        case appeared
        /// It is in its place. Its content may have changed, or another file may have replaced it.
        case present
        case moved(to: [UInt8])
        case removed
    }

    /// Determines the fate from the files. May block on their filesystem.
    ///
    /// - Parameter wasAbsent: Whether the target did not exist when the claim was granted.
    public func fate(wasAbsent: Bool) -> Fate {
        guard let name else { return .present }
        if (try? FileDescriptor.openBeneath(directory.number, name, OpenFlags.path | O_NOFOLLOW, crossMounts: crossesMounts)) != nil {
            return wasAbsent ? .appeared : .present
        }
        guard let file, let status = try? file.descriptor.status() else { return wasAbsent ? .absent : .removed }
        // A removed directory keeps a link count on some filesystems, and a file may have another
        // name: verify that the file is where its path says.
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
