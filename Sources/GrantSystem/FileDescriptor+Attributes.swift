import CGrantSystem
import Glibc

/// Extended attributes, see xattr(7). The descriptor may be O_PATH.
extension FileDescriptor {
    /// getxattr(2), at most `limit` bytes.
    ///
    /// - Throws: ENODATA if there is no such attribute, ERANGE if it is longer, EOPNOTSUPP if the
    ///   filesystem has no attributes.
    public func attribute(_ name: String, limit: Int) throws(Errno) -> [UInt8] {
        var value = [UInt8](repeating: 0, count: limit)
        let length = try Errno.check(
            value.withUnsafeMutableBytes { buffer in clinux_getxattr_descriptor(number, name, buffer.baseAddress, buffer.count) })
        return Array(value.prefix(length))
    }

    /// setxattr(2), which creates or replaces.
    ///
    /// - Throws: EOPNOTSUPP if the filesystem has no attributes, and EPERM, EACCES, EROFS, ENOSPC,
    ///   EDQUOT.
    public func setAttribute(_ name: String, to value: [UInt8]) throws(Errno) {
        _ = try Errno.check(value.withUnsafeBytes { clinux_setxattr_descriptor(number, name, $0.baseAddress, $0.count, 0) })
    }

    /// removexattr(2). ENODATA if there is none of that name.
    public func removeAttribute(_ name: String) throws(Errno) { _ = try Errno.check(clinux_removexattr_descriptor(number, name)) }
}

extension FileDescriptor {
    /// Requests the file's attributes from the filesystem, past the kernel's cache.
    ///
    /// Returns its error number, or 0. May block on the filesystem.
    public var freshStatusError: Int32 { 0 - min(clinux_statx_sync(number), 0) }
}
