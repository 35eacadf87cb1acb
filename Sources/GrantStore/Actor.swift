import Glibc
import GrantModel
import LinuxFS

/// Who does something, for the log.
public struct Actor: Hashable, Sendable {
    public var uid: UInt32
    public var pid: Int32
    /// The program's name as /proc/PID/comm has it, or what the caller wants to be known as.
    public var program: String

    public init(uid: UInt32, pid: Int32, program: String) {
        self.uid = uid
        self.pid = pid
        self.program = program
    }

    /// This process, with its real user.
    public static func current() -> Actor {
        Actor(uid: getuid(), pid: getpid(), program: File.line(of: "/proc/self/comm") ?? "grantfs")
    }
}
