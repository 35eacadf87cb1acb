import Glibc
import GrantSystem

/// The identity of a file, independent of its name. It tells a file from a later one with the same
/// inode number.
public struct FileKey: Hashable, Sendable {
    let device: dev_t
    let inode: ino_t
    /// The birth time in nanoseconds since 1970, or 0 if the filesystem has none.
    package let born: Int64

    package init(_ status: FileStatus) {
        (device, inode) = (status.st.st_dev, status.st.st_ino)
        born = status.has_birth ? status.birth_seconds &* 1_000_000_000 &+ Int64(status.birth_nanoseconds) : 0
    }
}
