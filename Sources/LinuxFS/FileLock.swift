import Glibc

/// A lock on a file of the program's own, see flock(2). It ends with this value or with the process, however that ends, and
/// no child inherits it.
public struct FileLock: ~Copyable, Sendable {
    private let file: FileDescriptor

    private init(_ file: consuming FileDescriptor) { self.file = file }

    /// Locks the file, which is made when it is missing and `create` is given (mode 0600). Throws ENOENT when it is missing, EWOULDBLOCK when
    /// somebody else has it and `waits` is not given. A file that was removed while this waited is not taken for the one of that name.
    public static func take(_ path: String, create: Bool = false, waits: Bool = false) throws(Errno) -> FileLock {
        while true {
            let file = try FileDescriptor.open(path.utf8, O_RDWR | O_NOFOLLOW | (create ? O_CREAT : 0), mode: 0o600)
            while flock(file.number, LOCK_EX | (waits ? 0 : LOCK_NB)) != 0 {
                if errno != EINTR { throw Errno(errno) }
            }
            var (own, named) = (stat(), stat())
            guard fstat(file.number, &own) == 0 else { throw Errno(errno) }
            if lstat(path, &named) == 0, own.st_dev == named.st_dev, own.st_ino == named.st_ino { return FileLock(file) }
        }
    }
}
