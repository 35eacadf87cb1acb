import CGrantSystem
import Glibc

/// Permission events for open(2) on marked files, from any process of this machine.
///
/// The opener waits until `allow` (fanotify(7), FAN_OPEN_PERM). Belongs to the thread that makes
/// it. When that thread ends for any reason, the kernel allows every opening.
public struct OpenPermissionEvents: ~Copyable {
    /// A wake-up descriptor: makes `wait` return. Any thread may signal it.
    public final class Wakeup: Sendable {
        fileprivate let descriptor: FileDescriptor
        public init() throws(Errno) { descriptor = FileDescriptor(owning: try Errno.check(clinux_openings_wakeup_open())) }
        public func signal() { clinux_openings_wakeup(descriptor.number) }
    }

    /// An open(2) that waits. `descriptor` is a number of the thread's own table.
    public struct Opening: Sendable {
        /// The opening process. 0 if it is outside our PID namespaces.
        public let process: pid_t
        public let descriptor: Int32
    }

    /// Identifies a mark by an O_PATH descriptor, a number of the thread's own table.
    public struct Mark: Sendable { fileprivate let path: Int32 }

    private let group: Int32
    private let wakeup: Wakeup
    /// How many descriptors the thread's table has room for.
    public static var capacity: Int { clinux_openings_room() }

    /// Gives the calling thread a descriptor table of its own.
    ///
    /// From then on it must start no threads and use only the descriptors it gets here.
    ///
    /// - Throws: EPERM without CAP_SYS_ADMIN, ENOSYS before Linux 6.1. There an open could slip
    ///   through between the mark and the check for openers.
    public init(wakeup: Wakeup) throws(Errno) {
        guard clinux_openings_are_counted_first() else { throw Errno(ENOSYS) }
        group = try Errno.check(clinux_openings_begin(wakeup.descriptor.number))
        self.wakeup = wakeup
    }

    deinit { _ = clinux_close(group) }

    /// Makes later opens of a file wait. Returns nil if the file cannot be marked.
    ///
    /// - Parameter descriptor: A number of the process's shared table.
    public func mark(_ descriptor: Int32) -> Mark? {
        let path = clinux_openings_mark(group, descriptor)
        return path < 0 ? nil : Mark(path: path)
    }

    public func unmark(_ mark: Mark) { clinux_openings_unmark(group, mark.path) }

    /// Waits for a permission event, for the wake-up descriptor, or for `milliseconds`.
    ///
    /// `ignoresOpenings`: does not wait for events. -1 milliseconds means forever.
    public func wait(milliseconds: Int32, ignoresOpenings: Bool) {
        clinux_openings_wait(group, wakeup.descriptor.number, milliseconds, !ignoresOpenings)
    }

    /// The next open that waits, which must be passed to `allow`. Returns nil if there is none.
    public func next() -> Opening? {
        var (process, descriptor): (pid_t, Int32) = (0, -1)
        return clinux_openings_next(group, &process, &descriptor) ? Opening(process: process, descriptor: descriptor) : nil
    }

    public func allow(_ opening: Opening) { clinux_openings_allow(group, opening.descriptor) }
}
