import CGrantSystem
import Glibc

/// Which directories of a filesystem find a name under another spelling, for example in capitals.
public enum NameFolding: Sendable {
    case nowhere
    /// Those with a flag for it.
    case inFlaggedDirectories
    case everywhere

    /// ext2 to ext4, f2fs, tmpfs, overlay, ramfs.
    private static let flagged: Set<Int64> = [0xEF53, 0xF2F5_2010, 0x0102_1994, 0x794C_7630, 0x8584_58F6]
    /// Btrfs, XFS.
    private static let exact: Set<Int64> = [0x9123_683E, 0x5846_5342]

    /// - Parameter type: f_type of statfs(2), or nil if it is unknown.
    public init(filesystem type: Int64?) {
        guard let type else {
            self = .everywhere
            return
        }
        self = Self.flagged.contains(type) ? .inFlaggedDirectories : Self.exact.contains(type) ? .nowhere : .everywhere
    }

    /// Of the filesystem of an open directory.
    public init(of directory: borrowing FileDescriptor) {
        var (type, number): (Int64, UInt64) = (0, 0)
        self.init(filesystem: clinux_fstatfs_type(directory.number, &type, &number) == 0 ? type : nil)
    }

    /// Whether a directory that is opened for reading finds other spellings.
    public func holds(inOpened directory: Int32) -> Bool {
        guard self == .inFlaggedDirectories else { return self == .everywhere }
        let result = clinux_folds_names(directory)
        // A filesystem without flags has no such directories.
        return result > 0 || (result < 0 && result != -ENOTTY && result != -EOPNOTSUPP)
    }

    /// The same for the directory with this path below another one, which may be O_PATH. Returns nil if it cannot be opened.
    public func holds(in path: some Collection<UInt8>, below root: Int32) -> Bool? {
        guard self == .inFlaggedDirectories else { return self == .everywhere }
        let opened =
            path.isEmpty
            ? clinux_reopen(root, O_RDONLY | O_DIRECTORY)
            : (path.map(CChar.init(bitPattern:)) + [0]).withUnsafeBufferPointer {
                clinux_open_beneath(root, $0.baseAddress!, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0, true)
            }
        if opened < 0 { return nil }
        defer { _ = clinux_close(opened) }
        return holds(inOpened: opened)
    }
}

/// An open directory, and which directories below it find a name under other spellings.
package final class FoldedTree: Sendable {
    private let top: FileDescriptor
    private let folding: NameFolding

    /// - Parameter top: May be O_PATH.
    package init(_ top: borrowing FileDescriptor) throws(Errno) {
        self.top = try top.reopened(OpenFlags.path | O_DIRECTORY)
        folding = NameFolding(of: top)
    }

    /// Does so as `NameFolding.holds`. An empty path is the directory itself.
    package func folds(_ path: some Collection<UInt8>) -> Bool? { folding.holds(in: path, below: top.number) }
}
