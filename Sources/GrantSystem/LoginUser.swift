import Glibc

/// Who has logged in, whatever user a process is of by now.
public enum LoginUser {
    /// The uid that the kernel has noted for this process since a login (/proc/PID/loginuid, pam_loginuid(8)). Where none was noted and root asks,
    /// the one that sudo(8) names: others could name whom they like. nil for what was started by no login.
    public static var ofThisProcess: UInt32? {
        if let noted = File.line(of: "/proc/self/loginuid").flatMap({ UInt32($0, radix: 10) }), noted != .max { return noted }
        guard getuid() == 0, let named = getenv("SUDO_UID") else { return nil }
        return UInt32(String(cString: named), radix: 10).flatMap { $0 == .max ? nil : $0 }
    }
}
