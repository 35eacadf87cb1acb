import Glibc
import GrantSystem

/// Absolute paths without links, `.` and `..`.
enum CanonicalPath {
    /// Opens a directory. ELOOP if there is a link in the path.
    static func open(_ path: [UInt8], _ flags: Int32) throws(Errno) -> FileDescriptor {
        guard path.first == 0x2F else { throw Errno(ENOENT) }
        let root = try FileDescriptor.open([0x2F], OpenFlags.path | O_DIRECTORY)
        let below = path.drop { $0 == 0x2F }
        return try FileDescriptor.openBeneath(
            root.number, below.isEmpty ? [0x2E] : below, flags | O_DIRECTORY | O_NOFOLLOW, crossMounts: true)
    }

    /// Whether it cannot be determined which file is at the path.
    ///
    /// A parent may not be searched, or a disk or server does not respond.
    static func isBlocked(_ path: [UInt8]) -> Bool {
        do throws(Errno) {
            _ = try open(path, OpenFlags.path)
            return false
        } catch {
            return ![ENOENT, ENOTDIR, ELOOP, ENAMETOOLONG].contains(error.rawValue)
        }
    }

    /// Opens a file of any type at the path, with O_PATH. ELOOP if a parent is a link.
    static func openAny(_ path: [UInt8]) throws(Errno) -> FileDescriptor {
        guard path.first == 0x2F else { throw Errno(ENOENT) }
        let root = try FileDescriptor.open([0x2F], OpenFlags.path | O_DIRECTORY)
        return try FileDescriptor.openBeneath(root.number, path.drop { $0 == 0x2F }, OpenFlags.path | O_NOFOLLOW, crossMounts: true)
    }

    /// Returns the parent directory, or nil for the root.
    static func parent(_ path: [UInt8]) -> [UInt8]? {
        guard path != [0x2F], let slash = path.lastIndex(of: 0x2F) else { return nil }
        return slash == 0 ? [0x2F] : Array(path[..<slash])
    }
}
