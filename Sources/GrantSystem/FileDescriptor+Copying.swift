import CGrantSystem
import Glibc

/// System calls for copying file data. None of these descriptors may be O_PATH.
extension FileDescriptor {
    /// FICLONE: shares all data of `source` until either file changes.
    ///
    /// - Throws: EOPNOTSUPP, EXDEV, EINVAL or ENOTTY if the filesystem cannot.
    public func clone(_ source: borrowing FileDescriptor) throws(Errno) { _ = try Errno.check(clinux_clone(source.number, number)) }

    /// copy_file_range(2) between equal offsets. Returns the bytes copied.
    ///
    /// The result is 0 at the end of `source`, and on filesystems with generated files.
    public func copyRange(of source: borrowing FileDescriptor, at offset: Int64, count: Int) throws(Errno) -> Int {
        try Errno.check(
            clinux_copy_file_range(source.number, off_t(truncatingIfNeeded: offset), number, off_t(truncatingIfNeeded: offset), count, 0))
    }

    /// Copies by read and write instead, through `buffer`.
    public func copy(of source: borrowing FileDescriptor, at offset: Int64, count: Int, by buffer: inout [UInt8]) throws(Errno) -> Int {
        let wanted = min(count, buffer.count)
        let filled = try Errno.check(
            buffer.withUnsafeMutableBytes { clinux_pread(source.number, $0.baseAddress!, wanted, off_t(truncatingIfNeeded: offset)) })
        var done = 0
        while done < filled {
            done += try Errno.check(
                buffer.withUnsafeBytes {
                    clinux_pwrite(number, $0.baseAddress! + done, filled - done, off_t(truncatingIfNeeded: offset) &+ done, false)
                })
        }
        return filled
    }

    /// The next data extent from `offset` on (SEEK_DATA, SEEK_HOLE). Returns nil if there is none.
    ///
    /// On a filesystem without holes, everything up to `size` is one extent.
    public func data(from offset: Int64, size: Int64) throws(Errno) -> Range<Int64>? {
        let start = clinux_lseek(number, offset, clinux_SEEK_DATA)
        if start == -Int64(truncatingIfNeeded: ENXIO) { return nil }
        if start == -Int64(truncatingIfNeeded: EINVAL) { return offset < size ? offset..<size : nil }
        let end = try Errno.check(clinux_lseek(number, try Errno.check(start), clinux_SEEK_HOLE))
        return start < end ? start..<end : nil
    }

    public func truncate(to size: Int64) throws(Errno) { _ = try Errno.check(clinux_ftruncate(number, off_t(truncatingIfNeeded: size))) }

    /// Takes flock(2) exclusively without waiting. Held until the descriptor is closed.
    ///
    /// Returns false if another process holds it.
    public func tryLock() throws(Errno) -> Bool {
        let result = clinux_flock(number, LOCK_EX | LOCK_NB)
        if result == -EWOULDBLOCK { return false }
        _ = try Errno.check(result)
        return true
    }
}

/// Attributes of the file behind a descriptor, which may be O_PATH or a symbolic link.
extension FileDescriptor {
    /// chmod(2) to exactly these twelve bits. Not for symbolic links.
    public func setMode(_ mode: mode_t) throws(Errno) { _ = try Errno.check(clinux_chmod_descriptor(number, mode & 0o7777)) }
    public func setOwner(_ uid: uid_t, _ gid: gid_t) throws(Errno) { _ = try Errno.check(clinux_chown_descriptor(number, uid, gid)) }
    public func setTimes(access: timespec, modification: timespec) throws(Errno) {
        var times = (access, modification)
        _ = try Errno.check(
            withUnsafePointer(to: &times) { pointer in
                pointer.withMemoryRebound(to: timespec.self, capacity: 2) { clinux_utimens_descriptor(number, $0) }
            })
    }

    /// listxattr(2). The result is empty if the filesystem has no attributes.
    public func attributeNames() throws(Errno) -> [String] {
        var list = [CChar](repeating: 0, count: 65_536)
        let result = list.withUnsafeMutableBufferPointer { clinux_listxattr_descriptor(number, $0.baseAddress!, $0.count) }
        if result == -Int(truncatingIfNeeded: EOPNOTSUPP) || result == -Int(truncatingIfNeeded: ENOTSUP) { return [] }
        let length = try Errno.check(result)
        return list.prefix(length).split(separator: 0).map { name in String(decoding: name.map { UInt8(bitPattern: $0) }, as: UTF8.self) }
    }

    /// The target text of a symbolic link.
    public func linkText() throws(Errno) -> [UInt8] {
        var buffer = [CChar](repeating: 0, count: Int(PATH_MAX))
        let length = try Errno.check(
            buffer.withUnsafeMutableBufferPointer { clinux_readlink_descriptor(number, $0.baseAddress!, $0.count) })
        return buffer.prefix(length).map { UInt8(bitPattern: $0) }
    }
}

/// Operations on names in an open directory. No link is followed.
public enum DirectoryEntry {
    public static func makeDirectory(_ directory: Int32, _ name: [UInt8], _ mode: mode_t) throws(Errno) {
        _ = try Errno.check(withCString(name) { clinux_mkdirat(directory, $0, mode) })
    }

    /// mknod(2). The type is in `mode`.
    public static func makeNode(_ directory: Int32, _ name: [UInt8], _ mode: mode_t, device: dev_t) throws(Errno) {
        _ = try Errno.check(withCString(name) { clinux_mknodat(directory, $0, mode, device) })
    }

    public static func makeLink(_ directory: Int32, _ name: [UInt8], to text: [UInt8]) throws(Errno) {
        _ = try Errno.check(withCString(text) { text in withCString(name) { clinux_symlinkat(text, directory, $0) } })
    }

    /// Gives the file behind a descriptor one more name.
    public static func link(_ file: borrowing FileDescriptor, to directory: Int32, _ name: [UInt8]) throws(Errno) {
        let number = file.number
        _ = try Errno.check(withCString(name) { clinux_link_descriptor(number, directory, $0) })
    }

    public static func remove(_ directory: Int32, _ name: [UInt8], isDirectory: Bool) throws(Errno) {
        _ = try Errno.check(withCString(name) { clinux_unlinkat(directory, $0, isDirectory) })
    }

    /// renameat2(2) with RENAME_NOREPLACE: EEXIST if the new name is taken.
    public static func rename(_ directory: Int32, _ name: [UInt8], to newName: [UInt8]) throws(Errno) {
        try move(directory, name, to: directory, newName)
    }

    /// renameat2(2) with RENAME_NOREPLACE into another directory.
    public static func move(_ directory: Int32, _ name: [UInt8], to newDirectory: Int32, _ newName: [UInt8]) throws(Errno) {
        let noReplace: UInt32 = 1
        _ = try Errno.check(
            withCString(name) { name in withCString(newName) { clinux_renameat2(directory, name, newDirectory, $0, noReplace) } })
    }

    /// renameat2(2) with RENAME_EXCHANGE: swaps two names atomically.
    ///
    /// - Throws: EINVAL if the filesystem cannot.
    public static func exchange(
        _ directory: Int32, _ name: [UInt8], with otherDirectory: Int32, _ otherName: [UInt8]
    ) throws(Errno) {
        let exchange: UInt32 = 2
        _ = try Errno.check(
            withCString(name) { name in withCString(otherName) { clinux_renameat2(directory, name, otherDirectory, $0, exchange) } })
    }

    /// statx(2) of a name, without opening it.
    public static func status(_ directory: Int32, _ name: [UInt8]) throws(Errno) -> FileStatus {
        var status = FileStatus()
        _ = try Errno.check(withCString(name) { clinux_statx(directory, $0, &status) })
        return status
    }
}
