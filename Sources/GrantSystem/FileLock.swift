import Glibc

/// A lock on a file of the program's own, see flock(2). It ends with this value or with the process, however that ends, and
/// no child inherits it.
public struct FileLock: ~Copyable, Sendable {
    private let file: FileDescriptor

    private init(_ file: consuming FileDescriptor) { self.file = file }

    /// A new file (mode 0600) at the path, which nobody finds there unlocked: it is locked before it has its name, where the filesystem can do that. Elsewhere whoever
    /// was quicker is waited for. EEXIST when something stands there.
    public static func make(_ path: String) throws(Errno) -> FileLock {
        let slash = path.lastIndex(of: "/")
        let directory = try FileDescriptor.open((slash.map { path[..<$0] + "/" } ?? "./").utf8, OpenFlags.path | O_DIRECTORY)
        do throws(Errno) {
            let file = try FileDescriptor.openAt(directory.number, ".".utf8, OpenFlags.temporaryFile | O_RDWR, mode: 0o600)
            guard try file.tryLock() else { throw Errno(EWOULDBLOCK) }
            try DirectoryEntry.link(file, to: directory.number, Array((slash.map { path[path.index(after: $0)...] } ?? path[...]).utf8))
            return FileLock(file)
        } catch {
            guard [EOPNOTSUPP, EISDIR, ENOENT, EINVAL, ENOSYS].contains(error.rawValue) else { throw error }
            return try take(path, create: true, waits: true)
        }
    }

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
