import CGrantSystem
import Glibc

/// The identity of a file and of its filesystem.
extension FileDescriptor {
    /// name_to_handle_at(2).
    ///
    /// - Throws: EOPNOTSUPP if the filesystem has no handles.
    public func handle() throws(Errno) -> (type: Int32, bytes: [UInt8]) {
        var handle = clinux_handle()
        _ = try Errno.check(clinux_name_to_handle(number, &handle))
        return withUnsafeBytes(of: handle.bytes) { (handle.type, Array($0.prefix(Int(truncatingIfNeeded: handle.length)))) }
    }

    /// open_by_handle_at(2) on the filesystem of this descriptor, which must not be O_PATH.
    ///
    /// - Throws: EPERM without CAP_DAC_READ_SEARCH, ESTALE if the file no longer exists.
    public func open(handleType: Int32, bytes: [UInt8], _ flags: Int32) throws(Errno) -> FileDescriptor {
        var handle = clinux_handle()
        let capacity = MemoryLayout.size(ofValue: handle.bytes)
        guard bytes.count <= capacity else { throw Errno(EINVAL) }
        handle.type = handleType
        handle.length = UInt32(truncatingIfNeeded: bytes.count)
        withUnsafeMutableBytes(of: &handle.bytes) { $0.copyBytes(from: bytes) }
        return FileDescriptor(owning: try Errno.check(clinux_open_by_handle(number, &handle, flags)))
    }

    /// Opens the file behind this O_PATH descriptor.
    public func reopened(_ flags: Int32) throws(Errno) -> FileDescriptor {
        FileDescriptor(owning: try Errno.check(clinux_reopen(number, flags)))
    }

    /// FS_IOC_GETVERSION. The descriptor must not be O_PATH.
    ///
    /// - Throws: ENOTTY if the filesystem has none.
    public func generation() throws(Errno) -> UInt32 {
        var generation: UInt32 = 0
        _ = try Errno.check(clinux_generation(number, &generation))
        return generation
    }

    /// The filesystem's UUID (16 bytes), by its type's own ioctl or by FS_IOC_GETFSUUID.
    ///
    /// The descriptor must not be O_PATH.
    ///
    /// - Throws: ENOTTY if neither works.
    public func filesystemUUID() throws(Errno) -> [UInt8] {
        var uuid = [UInt8](repeating: 0, count: 16)
        if clinux_fs_uuid_by_type(number, &uuid) == 0 { return uuid }
        _ = try Errno.check(clinux_fs_uuid(number, &uuid))
        return uuid
    }

    /// statfs(2) f_fsid.
    public func filesystemID() throws(Errno) -> UInt64 {
        var type: Int64 = 0
        var fsid: UInt64 = 0
        _ = try Errno.check(clinux_fstatfs_type(number, &type, &fsid))
        return fsid
    }
}

/// /dev/disk/by-uuid, for filesystems whose UUID no ioctl reports.
public enum DiskLinks {
    /// The UUID that udev links to the block device, as bytes. Returns nil if there is no link.
    public static func uuid(device: dev_t) -> [UInt8]? {
        guard let directory = opendir("/dev/disk/by-uuid") else { return nil }
        defer { closedir(directory) }
        while let entry = readdir(directory) {
            let name = withUnsafePointer(to: &entry.pointee.d_name) {
                $0.withMemoryRebound(to: CChar.self, capacity: 256) { String(cString: $0) }
            }
            var status = stat()
            guard stat("/dev/disk/by-uuid/" + name, &status) == 0, status.st_mode & S_IFMT == S_IFBLK, status.st_rdev == device else {
                continue
            }
            return bytes(uuid: name)
        }
        return nil
    }

    /// Decodes pairs of hexadecimal digits, ignoring dashes.
    ///
    /// Returns nil for anything else, and for more than 16 bytes.
    static func bytes(uuid text: String) -> [UInt8]? {
        let digits = text.filter { $0 != "-" }
        guard digits.utf8.count % 2 == 0, (2...32).contains(digits.utf8.count) else { return nil }
        var result: [UInt8] = []
        var rest = digits[...]
        while !rest.isEmpty {
            guard rest.prefix(2).allSatisfy(\.isHexDigit), let byte = UInt8(rest.prefix(2), radix: 16) else { return nil }
            result.append(byte)
            rest = rest.dropFirst(2)
        }
        return result
    }
}
