import CGrantSystem
import Glibc

/// An owned descriptor, closed when the value ends.
public struct FileDescriptor: ~Copyable, Sendable {
    public let number: Int32

    /// Takes ownership of `number`, which must be open and have no other owner.
    public init(owning number: Int32) { self.number = number }

    deinit { _ = clinux_close(number) }

    /// Gives up ownership. The caller closes the number.
    public consuming func release() -> Int32 {
        let number = number
        discard self
        return number
    }
}

extension FileDescriptor {
    /// open(2) by path, O_CLOEXEC added.
    ///
    /// Follows links unless `flags` contain O_NOFOLLOW: only for the daemon's own paths, never for
    /// names inside a grant.
    public static func open(_ path: some Sequence<UInt8>, _ flags: Int32, mode: mode_t = 0) throws(Errno) -> FileDescriptor {
        try openAt(AT_FDCWD, path, flags, mode: mode)
    }

    /// openat(2), O_CLOEXEC added.
    public static func openAt(
        _ directory: Int32, _ path: some Sequence<UInt8>, _ flags: Int32, mode: mode_t = 0
    ) throws(Errno) -> FileDescriptor {
        let result = withCString(path) { clinux_openat(directory, $0, flags, mode) }
        return FileDescriptor(owning: try Errno.check(result))
    }

    /// openat2(2) that never leaves `directory` and follows no link.
    ///
    /// It stays on its filesystem unless `crossMounts` is set.
    public static func openBeneath(
        _ directory: Int32, _ path: some Sequence<UInt8>, _ flags: Int32, crossMounts: Bool = false
    ) throws(Errno) -> FileDescriptor {
        let result = withCString(path) { clinux_open_beneath(directory, $0, flags, 0, crossMounts) }
        return FileDescriptor(owning: try Errno.check(result))
    }

    /// The file's current path as /proc/self/fd shows it.
    ///
    /// The kernel appends ` (deleted)` once it is removed.
    public func path() throws(Errno) -> [UInt8] {
        var buffer = [UInt8](repeating: 0, count: 4 * Int(PATH_MAX))
        let length = try Errno.check(
            buffer.withUnsafeMutableBytes { clinux_descriptor_path(number, $0.baseAddress!.assumingMemoryBound(to: CChar.self), $0.count) })
        return Array(buffer.prefix(length))
    }

    /// statx(2) of the file.
    public func status() throws(Errno) -> FileStatus {
        var status = FileStatus()
        _ = try Errno.check(clinux_statx(number, nil, &status))
        return status
    }

    /// statx(2) past the kernel's cache: calls the filesystem's server (AT_STATX_FORCE_SYNC).
    public func freshStatus() throws(Errno) -> FileStatus {
        _ = try Errno.check(clinux_statx_sync(number))
        return try status()
    }
}

/// The result of statx(2): `st` as in stat(2), birth time, mount ID.
///
/// Also whether it is the root of a mount.
public typealias FileStatus = clinux_statx

/// Calls `body` with a NUL-terminated copy of `bytes`. Allocates: not for the hot path.
public func withCString<Result>(_ bytes: some Sequence<UInt8>, _ body: (UnsafePointer<CChar>) -> Result) -> Result {
    var terminated = Array(bytes)
    terminated.append(0)
    return terminated.withUnsafeBufferPointer { buffer in
        buffer.withMemoryRebound(to: CChar.self) { body($0.baseAddress!) }
    }
}

/// Open flags that Glibc hides.
public enum OpenFlags {
    public static let path = clinux_O_PATH
    public static let direct = clinux_O_DIRECT
    public static let temporaryFile = clinux_O_TMPFILE
    public static let noAccessTime = clinux_O_NOATIME
}

/// The kernel's clocks.
public enum Clock {
    /// CLOCK_REALTIME in nanoseconds since 1970.
    public static var realtime: Int64 { clinux_clock_realtime() }
    /// CLOCK_MONOTONIC in nanoseconds.
    public static var monotonic: Int64 { clinux_clock_monotonic() }
}
