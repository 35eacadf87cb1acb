import CGrantSystem
import Glibc

/// Openings of marked files by anybody on this machine, which wait until they are allowed (fanotify(7), FAN_OPEN_PERM). Belongs to the thread that makes
/// it; when that ends, by whatever cause, all openings are allowed.
public struct HeldOpenings: ~Copyable {
    /// Wakes the thread. May be rung by anybody.
    public final class Bell: Sendable {
        fileprivate let descriptor: FileDescriptor
        public init() throws(Errno) { descriptor = FileDescriptor(owning: try Errno.check(clinux_openings_bell())) }
        public func ring() { clinux_openings_ring(descriptor.number) }
    }

    /// An opening that waits. `descriptor` is a number of the thread's own table.
    public struct Opening: Sendable {
        /// Who opens: a process; 0 when it is in no namespace of ours.
        public let process: pid_t
        public let descriptor: Int32
    }

    /// What names a mark: an O_PATH descriptor, a number of the thread's own table.
    public struct Mark: Sendable { fileprivate let path: Int32 }

    private let group: Int32
    private let bell: Bell
    /// So many descriptors a thread's table has room for.
    public static var room: Int { clinux_openings_room() }

    /// Gives the calling thread a table of descriptors of its own, so it is to make no threads and use no descriptors but what it gets here. EPERM
    /// without CAP_SYS_ADMIN; ENOSYS where an opening could slip through between a mark and a look at who has the file open (before Linux 6.1).
    public init(bell: Bell) throws(Errno) {
        guard clinux_openings_are_counted_first() else { throw Errno(ENOSYS) }
        group = try Errno.check(clinux_openings_begin(bell.descriptor.number))
        self.bell = bell
    }

    deinit { _ = clinux_close(group) }

    /// From now on openings of a file wait. `descriptor`: of the process's common table. nil where that cannot be.
    public func mark(_ descriptor: Int32) -> Mark? {
        let path = clinux_openings_mark(group, descriptor)
        return path < 0 ? nil : Mark(path: path)
    }

    public func unmark(_ mark: Mark) { clinux_openings_unmark(group, mark.path) }

    /// Waits for an opening (unless it `ignores` them), the bell, or `milliseconds`; -1: for ever.
    public func wait(milliseconds: Int32, ignoresOpenings: Bool) {
        clinux_openings_wait(group, bell.descriptor.number, milliseconds, !ignoresOpenings)
    }

    /// The next opening that waits, to be given to `allow`; nil when none does.
    public func next() -> Opening? {
        var (process, descriptor): (pid_t, Int32) = (0, -1)
        return clinux_openings_next(group, &process, &descriptor) ? Opening(process: process, descriptor: descriptor) : nil
    }

    public func allow(_ opening: Opening) { clinux_openings_allow(group, opening.descriptor) }
}
