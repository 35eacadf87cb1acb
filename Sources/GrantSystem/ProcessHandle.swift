import CGrantSystem
import Glibc

/// A handle on a process (pidfd_open(2)), immune to reuse of its number.
public struct ProcessHandle: ~Copyable, Sendable {
    private let descriptor: FileDescriptor

    /// Opens a process.
    ///
    /// - Throws: ESRCH if there is no such process.
    public init(_ pid: Int32) throws(Errno) { descriptor = FileDescriptor(owning: try Errno.check(clinux_process_open(pid))) }

    public var hasEnded: Bool { hasEnded(within: 0) }

    /// Waits for its end, at most that many milliseconds.
    public func hasEnded(within milliseconds: Int32) -> Bool {
        var request = pollfd(fd: descriptor.number, events: Int16(POLLIN), revents: 0)
        return poll(&request, 1, milliseconds) > 0
    }

    /// Sends a signal.
    ///
    /// - Throws: ESRCH if it has ended, EPERM if it belongs to another user.
    public func send(_ signal: Int32) throws(Errno) { _ = try Errno.check(clinux_process_signal(descriptor.number, signal)) }
}

/// Resources that two threads may share, see kcmp(2).
public enum SharedByThreads: Sendable {
    case descriptors, memory, directories

    /// Whether two threads share it. Also false if the kernel does not tell.
    public func isShared(_ one: Int32, _ other: Int32) -> Bool {
        let what =
            switch self {
            case .descriptors: clinux_SHARED_FILES
            case .memory: clinux_SHARED_MEMORY
            case .directories: clinux_SHARED_DIRECTORIES
            }
        return clinux_threads_share(one, other, Int32(truncatingIfNeeded: what))
    }
}
