import Glibc
import GrantSystem

extension UnixSocket {
    /// Listens at `name` in the open directory, with mode 0600. A socket of that name on which no process listens any more is removed
    /// first. Throws EADDRINUSE if one does.
    package static func listen(inPlaceOfDead name: String, in directory: Int32) throws(Errno) -> UnixSocket {
        do {
            return try UnixSocket.listen(directory: directory, name: name)
        } catch {
            guard error == Errno(EADDRINUSE) else { throw error }
            do {
                _ = try UnixSocket.connect(directory: directory, name: name)
            } catch {
                guard error == Errno(ECONNREFUSED) else { throw error }
                unlinkat(directory, name, 0)
                return try UnixSocket.listen(directory: directory, name: name)
            }
            throw error
        }
    }
}
