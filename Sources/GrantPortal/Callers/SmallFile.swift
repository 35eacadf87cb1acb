import Glibc
import GrantSystem

/// Files that another user or an application may have put in place: they are checked before they are opened.
enum SmallFile {
    private static let largest = 65_536

    /// Reads a file that was opened with O_PATH. Throws EBADMSG if it is not a regular file,
    /// belongs to neither this user nor root, or is writable by others, and EFBIG if it is too
    /// large.
    static func contents(of found: borrowing FileDescriptor) throws(Errno) -> [UInt8] {
        let status = try found.status()
        guard status.st.st_mode & S_IFMT == S_IFREG, status.st.st_mode & 0o002 == 0, [0, geteuid()].contains(status.st.st_uid) else {
            throw Errno(EBADMSG)
        }
        guard status.st.st_size <= largest else { throw Errno(EFBIG) }
        let file = try FileDescriptor.open("/proc/self/fd/\(found.number)".utf8, O_RDONLY | O_NONBLOCK | O_NOCTTY)
        return try contents(reading: file, most: largest)
    }

    /// Reads a file. Throws EFBIG if it has more than `most` bytes, even if its size is smaller.
    static func contents(reading file: borrowing FileDescriptor, most: Int) throws(Errno) -> [UInt8] {
        var result: [UInt8] = []
        var buffer = [UInt8](repeating: 0, count: 16_384)
        while result.count <= most {
            let count = read(file.number, &buffer, buffer.count)
            if count == 0 { return result }
            if count < 0 {
                if errno == EINTR { continue }
                throw Errno(errno)
            }
            result += buffer[..<count]
        }
        throw Errno(EFBIG)
    }

    /// Reads a process's table of mounts. EFBIG when it is longer than 1 MiB, since a process may have any number of mounts.
    static func mounts(of pid: Int32) throws(Errno) -> MountTable {
        let file = try FileDescriptor.open("/proc/\(pid)/mountinfo".utf8, O_RDONLY)
        return MountTable(parsing: try contents(reading: file, most: 1 << 20))
    }
}
