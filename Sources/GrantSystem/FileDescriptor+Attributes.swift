import CGrantSystem
import Glibc

/// Extended attributes, see xattr(7). The descriptor may be O_PATH.
extension FileDescriptor {
    /// getxattr(2), of `limit` bytes at most. ENODATA when there is none of that name, ERANGE when it is longer, EOPNOTSUPP where
    /// the filesystem has none at all.
    public func attribute(_ name: String, limit: Int) throws(Errno) -> [UInt8] {
        var value = [UInt8](repeating: 0, count: limit)
        let length = try Errno.check(
            value.withUnsafeMutableBytes { buffer in clinux_getxattr_descriptor(number, name, buffer.baseAddress, buffer.count) })
        return Array(value.prefix(length))
    }

    /// setxattr(2), whether or not there is one. EOPNOTSUPP where the filesystem has none, EPERM, EACCES, EROFS, ENOSPC, EDQUOT.
    public func setAttribute(_ name: String, to value: [UInt8]) throws(Errno) {
        _ = try Errno.check(value.withUnsafeBytes { clinux_setxattr_descriptor(number, name, $0.baseAddress, $0.count, 0) })
    }

    /// removexattr(2). ENODATA when there is none of that name.
    public func removeAttribute(_ name: String) throws(Errno) { _ = try Errno.check(clinux_removexattr_descriptor(number, name)) }
}

extension FileDescriptor {
    /// The error number with which the filesystem itself answers what a file's attributes are, whatever the kernel has cached of them; 0 when it tells them. May wait for the filesystem.
    public var errorOfAsking: Int32 { 0 - min(clinux_ask(number), 0) }
}
