import Glibc
import GrantModel
import GrantSystem

/// Who does something, for the log.
public struct Actor: Hashable, Sendable {
    public var uid: UInt32
    public var pid: Int32
    /// The program's name as /proc/PID/comm has it, or what the caller wants to be known as.
    public var program: String
    /// Who has logged in, whatever user this is by now (`LoginUser`); nil where nobody knows, and for what programs do through a mount.
    public var loginUID: UInt32?

    public init(uid: UInt32, pid: Int32, program: String, loginUID: UInt32? = nil) {
        self.uid = uid
        self.pid = pid
        self.program = program
        self.loginUID = loginUID
    }

    /// This process, with its real user.
    public static func current() -> Actor {
        Actor(uid: getuid(), pid: getpid(), program: File.line(of: "/proc/self/comm") ?? "grantfs", loginUID: LoginUser.ofThisProcess)
    }

    /// For people, with what cannot be printed escaped: `uid 0 (login 1000), pid 7, grantfs`.
    public var description: String {
        let login = loginUID.map { " (login \($0))" } ?? ""
        let name = program.isEmpty ? "" : ", " + VisibleText.of(program)
        return "uid \(uid)\(login), pid \(pid)\(name)"
    }
}
