import Glibc
import GrantSystem

/// Holds bwrap up where it reads one of its files, so that it makes most of a sandbox while the view is not served yet.
///
/// The file is one end of a socket that bwrap reads to its end. The other end has a byte that stays
/// unread before `release`: if that end is closed with it, by this process's death as well, the
/// kernel fails bwrap's read (ECONNRESET), and bwrap gives up. Nothing but `release` lets it go on.
final class SandboxBarrier {
    private let socket: UnixSocket
    /// bwrap's end.
    let file: FileDescriptor
    private var isHolding = true

    init() throws(Errno) {
        var ends: [Int32] = [-1, -1]
        guard socketpair(AF_UNIX, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0, &ends) == 0 else { throw Errno(errno) }
        socket = UnixSocket(connected: FileDescriptor(owning: ends[0]))
        file = FileDescriptor(owning: ends[1])
        guard write(file.number, [0], 1) == 1 else { throw Errno(errno) }
    }

    /// Lets bwrap go on.
    func release() {
        guard isHolding else { return }
        isHolding = false
        var byte: UInt8 = 0
        while read(socket.number, &byte, 1) < 0, errno == EINTR {}
        shutdown(socket.number, Int32(SHUT_WR))
    }
}
