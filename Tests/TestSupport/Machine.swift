import Foundation
import Glibc

/// Who runs a program.
public struct Identity: Sendable, Equatable, CustomStringConvertible {
    public let uid: UInt32
    public let gid: UInt32

    public static let current = Identity(uid: geteuid(), gid: getegid())
    public static var isRoot: Bool { current.uid == 0 }

    /// What goes in front of a command so that this identity runs it, with no group but its own.
    var prefix: [String] {
        self == .current ? [] : ["setpriv", "--reuid=\(uid)", "--regid=\(gid)", "--clear-groups", "--"]
    }
    public var description: String { uid == 0 ? "root" : "user \(uid)" }
}

/// What this machine offers to tests with real mounts.
public enum Machine {
    public static let hasFUSE = access("/dev/fuse", F_OK) == 0
    public static let noFUSE = "there is no /dev/fuse here, so nothing can be mounted"
    public static let needsRoot = "needs root"
    public static func needs(_ program: String) -> String { "\(program) is not installed" }

    /// A user without privileges: whoever runs the tests, or, for root, a user that is made for them and removed at their end.
    public static let plainUser: Identity? = Identity.isRoot ? TestUser.make() : .current

    /// Lets plain users mount while tests run, where udev has not already: /dev/fuse is for everybody on ordinary machines.
    public static let usersCanMount: Bool = {
        guard hasFUSE, Command.exists("fusermount3"), plainUser != nil else { return false }
        return Identity.isRoot ? DeviceMode.open() : access("/dev/fuse", R_OK | W_OK) == 0
    }()
    public static let usersCannotMount = "plain users cannot mount here: no fusermount3, or no access to /dev/fuse"

    /// The size of the monotonic clock's steps does not matter here; milliseconds since some moment do.
    public static var milliseconds: Double {
        var time = timespec()
        clock_gettime(CLOCK_MONOTONIC, &time)
        return Double(time.tv_sec) * 1e3 + Double(time.tv_nsec) / 1e6
    }
}

enum TestUser {
    static let name = "grantfs-test"

    static func make() -> Identity? {
        if let known = look() { return known }
        // Another test process may hold the lock of /etc/passwd for a moment.
        for _ in 0..<20 {
            let made = try? Command.run(["useradd", "--system", "--no-create-home", "--shell", "/usr/sbin/nologin", name])
            if made?.status == 0 {
                atexit { _ = try? Command.run(["userdel", TestUser.name], within: 10) }
                break
            }
            if look() != nil { break }
            usleep(100_000)
        }
        return look()
    }

    private static func look() -> Identity? {
        guard let entry = getpwnam(name) else { return nil }
        return Identity(uid: entry.pointee.pw_uid, gid: entry.pointee.pw_gid)
    }
}

enum DeviceMode {
    nonisolated(unsafe) private static var before: mode_t = 0

    static func open() -> Bool {
        var status = stat()
        guard stat("/dev/fuse", &status) == 0 else { return false }
        before = status.st_mode & 0o777
        if before == 0o666 { return true }
        guard chmod("/dev/fuse", 0o666) == 0 else { return false }
        atexit { chmod("/dev/fuse", DeviceMode.before) }
        return true
    }
}
