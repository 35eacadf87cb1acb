import Glibc
import GrantModel
import GrantSystem

/// The right to change documents, which one service at a time has on a session bus: a lock that ends with its process.
///
/// A service that takes another one's name waits for this lock before it reads what there is. So nothing is changed by the former service after that.
///
/// It is a record lock (fcntl(2)), because the kernel says which process holds one. Each bus has a byte of the same file. Nothing else may open this file, because closing it
/// would end the lock. It cannot be opened for reading: a program that can only read this directory must not be able to lock it.
///
/// Locking: none, because this is a lock of the kernel.
final class ServiceLock: Sendable {
    static let name = "portals"
    private let file: FileDescriptor
    private let position: off_t

    /// `directory` is the store's directory for running processes. `bus` is the bus's own id, which
    /// no two buses share.
    init(in directory: String, bus: String) throws(Errno) {
        file = try FileDescriptor.open("\(directory)/\(Self.name)".utf8, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, mode: 0o200)
        _ = try Errno.check(fchmod(file.number, 0o200))
        // Without the highest bits, so that the end of the range is a valid position as well.
        position = off_t(SipHash(key0: 0, key1: 0).hash(Array(bus.utf8)) >> 2)
    }

    /// Takes the lock, without waiting. Returns false when another process holds it.
    func take() throws(Errno) -> Bool {
        var request = range(F_WRLCK)
        guard fcntl(file.number, F_SETLK, &request) != 0 else { return true }
        guard errno == EAGAIN || errno == EACCES || errno == EINTR else { throw Errno(errno) }
        return false
    }

    enum Holder: Equatable {
        case nobody
        case service(pid_t)
        /// A process that is not visible in this process's namespace of process ids.
        case invisible
        /// A program that has a lock for readers, which no service takes.
        case stranger
    }

    /// Which other process keeps this one from taking it.
    var holder: Holder {
        var request = range(F_WRLCK)
        guard fcntl(file.number, F_GETLK, &request) == 0, Int32(request.l_type) != F_UNLCK else { return .nobody }
        guard Int32(request.l_type) == F_WRLCK else { return .stranger }
        return request.l_pid > 0 ? .service(request.l_pid) : .invisible
    }

    /// Kills the process if it still holds the lock.
    func end(_ pid: pid_t) {
        // The handle comes first: when the number is still the holder's after that, the handle is of the holder, or of a process that has ended.
        guard let process = try? ProcessHandle(pid), holder == .service(pid) else { return }
        try? process.send(SIGKILL)
    }

    func release() {
        var request = range(F_UNLCK)
        _ = fcntl(file.number, F_SETLK, &request)
    }

    private func range(_ type: Int32) -> Glibc.flock {
        var range = Glibc.flock()
        range.l_type = Int16(truncatingIfNeeded: type)
        range.l_whence = Int16(truncatingIfNeeded: SEEK_SET)
        (range.l_start, range.l_len) = (position, 1)
        return range
    }
}
