import Glibc

/// The user who logged in, even if the process runs as another user now.
public enum LoginUser {
    /// The login uid of this process (/proc/PID/loginuid, pam_loginuid(8)).
    ///
    /// If none is recorded and root calls, the user that sudo(8) names. Other users could name any
    /// user. It is nil for processes that no login started.
    public static var ofThisProcess: UInt32? {
        if let noted = File.line(of: "/proc/self/loginuid").flatMap({ UInt32($0, radix: 10) }), noted != .max { return noted }
        guard getuid() == 0, let named = getenv("SUDO_UID") else { return nil }
        return UInt32(String(cString: named), radix: 10).flatMap { $0 == .max ? nil : $0 }
    }
}
