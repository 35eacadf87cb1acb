import Glibc

/// Reports mounts and unmounts in this process's namespace (proc_pid_mountinfo(5)), without polling
/// paths.
public struct MountWatch: ~Copyable, Sendable {
    private let file: FileDescriptor

    public init() throws(Errno) { file = try FileDescriptor.open("/proc/self/mountinfo".utf8, O_RDONLY) }

    /// The descriptor, for a poll(2) on POLLPRI. Call `changed(within: 0)` once it is ready.
    public var number: Int32 { file.number }

    /// Waits until the mount table changes or the timeout ends (negative: forever).
    ///
    /// Several changes may be reported as one.
    public func changed(within milliseconds: Int32) -> Bool {
        var request = pollfd(fd: file.number, events: Int16(truncatingIfNeeded: POLLPRI), revents: 0)
        return poll(&request, 1, milliseconds) > 0 && request.revents & Int16(truncatingIfNeeded: POLLPRI | POLLERR) != 0
    }
}
