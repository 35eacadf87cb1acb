import CGrantSystem
import Glibc

/// A device number.
public struct DeviceNumber: Hashable, Sendable {
    public var major: UInt32
    public var minor: UInt32

    public init(major: UInt32, minor: UInt32) {
        self.major = major
        self.minor = minor
    }

    /// The device behind `path`, links followed. Never blocks, because it calls no filesystem.
    public static func withoutAsking(_ path: String) throws(Errno) -> DeviceNumber {
        try MountIdentity.withoutAsking(path).device
    }
}
