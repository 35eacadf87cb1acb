import Glibc
import GrantSystem

extension UnixSocket {
    /// Listens at `name` in the open directory, with mode 0600. A socket of that name on which no process listens any more is removed
    /// first. Throws EADDRINUSE if one does.
    package static func listen(inPlaceOfDead name: String, in directory: Int32, backlog: Int32 = 64) throws(Errno) -> UnixSocket {
        do {
            return try UnixSocket.listen(directory: directory, name: name, backlog: backlog)
        } catch {
            // Another kind of file refuses connections as well.
            var status = stat()
            guard error == Errno(EADDRINUSE), fstatat(directory, name, &status, AT_SYMLINK_NOFOLLOW) == 0,
                status.st_mode & S_IFMT == S_IFSOCK
            else { throw error }
            do {
                _ = try UnixSocket.connect(directory: directory, name: name)
            } catch {
                guard error == Errno(ECONNREFUSED) else { throw error }
                unlinkat(directory, name, 0)
                return try UnixSocket.listen(directory: directory, name: name, backlog: backlog)
            }
            throw error
        }
    }
}
