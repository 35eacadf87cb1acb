import Glibc
import GrantSystem

/// What a file is, whatever its name: a number that is used again is another file.
public struct FileKey: Hashable, Sendable {
    let device: dev_t
    let inode: ino_t
    /// Nanoseconds since 1970; 0 where the filesystem has no time of birth.
    let born: Int64

    init(_ status: FileStatus) {
        (device, inode) = (status.st.st_dev, status.st.st_ino)
        born = status.has_birth ? status.birth_seconds &* 1_000_000_000 &+ Int64(status.birth_nanoseconds) : 0
    }
}
