import CGrantSystem
import Glibc

extension FileDescriptor {
    /// Reads this directory and returns the entries that are or may be directories.
    ///
    /// The directory must not be O_PATH, and is read from its start. Entries `.` and `..` are
    /// omitted. Stops after `limit` entries of any kind. The inode numbers are those of
    /// getdents64(2).
    public func subdirectories(limit: Int) throws(Errno) -> (found: [(inode: UInt64, name: [UInt8])], looked: Int) {
        var found: [(inode: UInt64, name: [UInt8])] = []
        let looked = try forEachEntry(limit: limit) { inode, type, name in
            if type == UInt8(truncatingIfNeeded: DT_DIR) || type == UInt8(truncatingIfNeeded: DT_UNKNOWN) {
                found.append((inode, Array(name)))
            }
        }
        return (found, looked)
    }

    /// Calls `body` with inode, type and name of each entry but `.` and `..`.
    ///
    /// The type is a `DT_…` value of the filesystem, possibly DT_UNKNOWN. Stops after `limit`
    /// entries. Returns how many were read, those two included.
    public func forEachEntry(limit: Int, _ body: (UInt64, UInt8, Slice<UnsafeRawBufferPointer>) -> Void) throws(Errno) -> Int {
        var looked = 0
        var buffer = [UInt8](repeating: 0, count: 65536)
        while looked < limit {
            let filled = min(
                buffer.count, try Errno.check(buffer.withUnsafeMutableBytes { clinux_getdents(number, $0.baseAddress!, $0.count) }))
            if filled == 0 { break }
            buffer.withUnsafeBytes { raw in
                var offset = 0
                while offset + 19 < filled {
                    // struct linux_dirent64: inode 8 bytes, position 8, length 2, type 1, name up
                    // to a NUL.
                    let length = Int(truncatingIfNeeded: raw.loadUnaligned(fromByteOffset: offset + 16, as: UInt16.self))
                    guard length > 19, length <= filled - offset else { break }
                    let name = raw[(offset + 19)..<(offset + length)].prefix { $0 != 0 }
                    looked += 1
                    let isDots = name.elementsEqual([0x2E]) || name.elementsEqual([0x2E, 0x2E])
                    if !isDots { body(raw.loadUnaligned(fromByteOffset: offset, as: UInt64.self), raw[offset + 18], name) }
                    offset += length
                }
            }
        }
        return looked
    }
}
