import Glibc
import GrantAdministration
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

/// The name of a socket on which this process listens.
package struct SocketName: ~Copyable {
    private let directory: FileDescriptor
    private let name: String
    /// The device and number of the socket that was made.
    private var made: [UInt64]?

    /// Throws ENOENT if the directory of this absolute path does not exist.
    package init(_ path: [UInt8]) throws(Errno) {
        directory = try FileDescriptor.open(CanonicalPath.parent(of: path), OpenFlags.path | O_DIRECTORY)
        name = String(decoding: CanonicalPath.lastName(of: path), as: UTF8.self)
    }

    /// See `UnixSocket.listen(inPlaceOfDead:in:backlog:)`.
    package mutating func listen(backlog: Int32 = 64) throws(Errno) -> UnixSocket {
        let socket = try UnixSocket.listen(inPlaceOfDead: name, in: directory.number, backlog: backlog)
        made = present()
        return socket
    }

    /// Removes the name, unless another process has put its own file there.
    package func remove() {
        if made != nil, present() == made { unlinkat(directory.number, name, 0) }
    }

    private func present() -> [UInt64]? {
        var status = stat()
        guard fstatat(directory.number, name, &status, AT_SYMLINK_NOFOLLOW) == 0 else { return nil }
        return [UInt64(status.st_dev), UInt64(status.st_ino)]
    }
}
