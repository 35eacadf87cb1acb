import Glibc
import GrantSystem

/// Relative paths in a tree, of any length.
enum TreePath {
    /// The part of a path that is handed to one system call, which takes less than PATH_MAX.
    private static let longest = 4000

    static func split(_ path: [UInt8]) -> (parent: [UInt8], name: [UInt8]) {
        guard let slash = path.lastIndex(of: 0x2F) else { return ([], path) }
        return (Array(path[..<slash]), Array(path[(slash + 1)...]))
    }

    /// Opens a path below `directory`, which may be O_PATH, as `FileDescriptor.openBeneath` does. Empty: `directory` itself.
    static func open(_ path: [UInt8], below directory: borrowing FileDescriptor, _ flags: Int32) throws(Errno) -> FileDescriptor {
        if path.isEmpty { return try directory.reopened(flags & ~O_NOFOLLOW) }
        var current = try directory.reopened(OpenFlags.path | O_DIRECTORY)
        var rest = path[...]
        while rest.count > longest, let slash = rest.prefix(longest).lastIndex(of: 0x2F) {
            current = try FileDescriptor.openBeneath(current.number, rest[..<slash], OpenFlags.path | O_DIRECTORY | O_NOFOLLOW)
            rest = rest[(slash + 1)...]
        }
        return try FileDescriptor.openBeneath(current.number, rest, flags)
    }
}
