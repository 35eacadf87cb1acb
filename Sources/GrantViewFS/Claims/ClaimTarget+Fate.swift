import GrantCoordinator
import Glibc
import GrantSystem
import GrantViewTree

extension ClaimTarget {
    /// What became of the target since it was claimed, as far as the files tell.
    public enum Fate: Equatable, Sendable {
        /// Nothing was there, and nothing is.
        case absent
        case appeared
        /// It is in its place; content or file may have changed.
        case present
        case moved(to: [UInt8])
        case removed
    }

    /// Determines it from the files; may block on their filesystem.
    ///
    /// `wasAbsent`: nothing was there when the claim was granted, whatever came in between.
    public func fate(wasAbsent: Bool) -> Fate {
        guard let name else { return .present }
        if (try? FileDescriptor.openBeneath(directory.number, name, OpenFlags.path | O_NOFOLLOW, crossMounts: crossesMounts)) != nil {
            return wasAbsent ? .appeared : .present
        }
        guard let file, let status = try? file.descriptor.status() else { return wasAbsent ? .absent : .removed }
        // A removed directory keeps a link count on some filesystems, and a file may have another name: verify that the file is
        // where its path says.
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
