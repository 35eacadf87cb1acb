import CLinux
import Glibc

/// Programs that are started.
public enum ChildProcess {
    /// posix_spawn(3) with all signals unblocked and at their default. `detached`: in a session of its own, stdin and stdout
    /// at /dev/null, and no other descriptors inherited. `descriptor`, when given, is number 3 in the child. A program without a slash is looked for in PATH.
    public static func spawn(
        _ program: String, arguments: [[UInt8]], detached: Bool = false, descriptor: Int32? = nil
    ) throws(Errno) -> Int32 {
        var pointers: [UnsafeMutablePointer<CChar>?] = arguments.map { argument in withCString(argument) { strdup($0) } }
        pointers.append(nil)
        defer { for pointer in pointers { free(pointer) } }
        return try Errno.check(clinux_spawn(program, pointers, detached, descriptor ?? -1))
    }

    /// The exit status of the child, or 128 and the number of the signal that ended it.
    public static func wait(_ pid: Int32) throws(Errno) -> Int32 { try Errno.check(clinux_wait_for_child(pid)) }
}

/// pipe2(2), close-on-exec.
public struct PipePair: ~Copyable, Sendable {
    public let reading: FileDescriptor
    public let writing: FileDescriptor

    public init() throws(Errno) {
        var ends: [Int32] = [-1, -1]
        _ = try Errno.check(clinux_pipe(&ends))
        reading = FileDescriptor(owning: ends[0])
        writing = FileDescriptor(owning: ends[1])
    }

    /// Keeps the reading end alone, so that the end of what the others write can be seen.
    public consuming func closeWriting() -> FileDescriptor { reading }
}
