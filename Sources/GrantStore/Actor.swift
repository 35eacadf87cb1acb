import Glibc
import GrantModel
import GrantSystem

/// The process behind an event, for the log.
public struct Actor: Hashable, Sendable {
    public var uid: UInt32
    public var pid: Int32
    /// The program's name from /proc/PID/comm, or one that the caller chose.
    public var program: String
    /// The uid of the user who logged in, which a later change of user keeps (`LoginUser`).
    ///
    /// It is nil if unknown, and for operations through a mount.
    public var loginUID: UInt32?

    public init(uid: UInt32, pid: Int32, program: String, loginUID: UInt32? = nil) {
        self.uid = uid
        self.pid = pid
        self.program = program
        self.loginUID = loginUID
    }

    /// The calling process, with its real uid.
    public static func current() -> Actor {
        Actor(uid: getuid(), pid: getpid(), program: File.line(of: "/proc/self/comm") ?? "grantfs", loginUID: LoginUser.ofThisProcess)
    }

    /// For people, with unprintable characters escaped: `uid 0 (login 1000), pid 7, grantfs`.
    public var description: String {
        let login = loginUID.map { " (login \($0))" } ?? ""
        let name = program.isEmpty ? "" : ", " + VisibleText.of(program)
        return "uid \(uid)\(login), pid \(pid)\(name)"
    }
}
