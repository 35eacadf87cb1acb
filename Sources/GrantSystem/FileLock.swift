import Glibc

/// A lock on one of the program's own files (flock(2)).
///
/// It ends with this value or with the process. No child inherits it.
public struct FileLock: ~Copyable, Sendable {
    private let file: FileDescriptor

    private init(_ file: consuming FileDescriptor) { self.file = file }

    /// Creates a file (mode 0600) that is never visible unlocked.
    ///
    /// It is locked before it is linked into place, if the filesystem supports that. Otherwise this
    /// waits for a faster process.
    ///
    /// - Throws: EEXIST if the name is taken.
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

    /// Locks the file.
    ///
    /// A file that is removed while this waits is never mistaken for its successor.
    ///
    /// - Parameters:
    ///   - create: Makes a missing file (mode 0600) instead of throwing ENOENT.
    ///   - waits: Waits for the holder instead of throwing EWOULDBLOCK.
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
