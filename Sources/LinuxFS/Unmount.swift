import CLinux
import Glibc

/// umount2(2) and its kin.
public enum Unmount {
    /// Takes the topmost mount at `path` away; a link there is not followed. `lazy`: detached now, gone when nobody uses it.
    public static func unmount(_ path: [UInt8], lazy: Bool = false) throws(Errno) {
        _ = try Errno.check(withCString(path) { clinux_unmount($0, lazy) })
    }

    /// Changes the flags of the mount at `path`.
    public static func remount(
        _ path: [UInt8], readOnly: Bool, setID: Bool, devices: Bool, noExecute: Bool, noAccessTime: Bool
    ) throws(Errno) {
        _ = try Errno.check(withCString(path) { clinux_remount($0, readOnly, setID, devices, noExecute, noAccessTime) })
    }
}

/// A device number.
public struct DeviceNumber: Hashable, Sendable {
    public var major: UInt32
    public var minor: UInt32

    public init(major: UInt32, minor: UInt32) {
        self.major = major
        self.minor = minor
    }

    /// The device of what `path` leads to, links followed. No filesystem is asked, so none can make it wait.
    public static func withoutAsking(_ path: String) throws(Errno) -> DeviceNumber {
        var (major, minor): (UInt32, UInt32) = (0, 0)
        _ = try Errno.check(clinux_device_without_asking(path, &major, &minor))
        return DeviceNumber(major: major, minor: minor)
    }
}
