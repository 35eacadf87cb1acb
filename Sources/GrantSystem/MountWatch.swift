import Glibc

/// Tells when something was mounted or unmounted in this process's namespace, see proc_pid_mountinfo(5): no polling of paths.
public struct MountWatch: ~Copyable, Sendable {
    private let file: FileDescriptor

    public init() throws(Errno) { file = try FileDescriptor.open("/proc/self/mountinfo".utf8, O_RDONLY) }

    /// The descriptor to poll(2) for POLLPRI beside others; call `changed(within: 0)` once it is ready.
    public var number: Int32 { file.number }

    /// Waits until the mount table changes, or the time is over (negative: for ever). Each change is told once; several may be
    /// told as one.
    public func changed(within milliseconds: Int32) -> Bool {
        var request = pollfd(fd: file.number, events: Int16(truncatingIfNeeded: POLLPRI), revents: 0)
        return poll(&request, 1, milliseconds) > 0 && request.revents & Int16(truncatingIfNeeded: POLLPRI | POLLERR) != 0
    }
}
