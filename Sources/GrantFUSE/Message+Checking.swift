import CGrantFUSE
import Glibc

// Validates messages: the library trusts their lengths and the NULs of names (lib/fuse_lowlevel.c).
// In a shorter message it would read bytes that an earlier request left in the buffer.
extension Message {
    /// Whether the message contains everything that its opcode requires.
    ///
    /// That is the structure, NUL-terminated names, and as much data as it declares. The kernel
    /// sends no incomplete message, but the check does not rely on that.
    @inline(__always)
    var isComplete: Bool {
        guard size >= Self.head else { return false }
        switch opcode {
        // LOOKUP, UNLINK, RMDIR, REMOVEXATTR, then SYMLINK
        case 1, 10, 11, 24: return names(1, from: 0)
        case 6: return names(2, from: 0)
        // FORGET, OPEN, OPENDIR, LISTXATTR, ACCESS, INTERRUPT
        case 2, 14, 27, 23, 34, 36: return has(8)
        // GETATTR, INIT, FSYNC, FSYNCDIR, BMAP
        case 3, 26, 20, 30, 37: return has(16)
        case 4: return has(88)
        // READ, READDIR, READDIRPLUS, NOTIFY_REPLY
        case 15, 28, 44, 41: return has(40)
        // RELEASE, RELEASEDIR, FLUSH, LSEEK, POLL, STATX
        case 18, 29, 25, 46, 40, 52: return has(24)
        // GETLK, SETLK, SETLKW
        case 31, 32, 33: return has(48)
        case 43: return has(32)
        case 47: return has(56)
        // MKNOD, CREATE, TMPFILE, then MKDIR, LINK, GETXATTR
        case 8, 35, 51: return names(1, from: 16)
        case 9, 13, 22: return names(1, from: 8)
        // RENAME, RENAME2
        case 12: return names(2, from: 8)
        case 45: return names(2, from: 16)
        // WRITE, IOCTL
        case 16: return has(40) && has(40, and: number(at: Self.head + 16))
        case 39: return has(32) && has(32, and: number(at: Self.head + 24))
        case 21: return hasAttribute
        case 42: return has(8) && number(at: Self.head) <= UInt32(truncatingIfNeeded: (size - Self.head - 8) / 16)
        default: return true
        }
    }

    /// Whether it expects a reply: not FORGET, INTERRUPT, NOTIFY_REPLY, BATCH_FORGET.
    var needsReply: Bool { ![2, 36, 41, 42].contains(opcode) }

    private static let head = 40

    @inline(__always)
    private func has(_ count: Int) -> Bool { size >= Self.head &+ count }

    private func has(_ count: Int, and more: UInt32) -> Bool { size >= Self.head &+ count &+ Int(truncatingIfNeeded: more) }

    /// Whether that many NUL-terminated names follow.
    @inline(__always)
    private func names(_ count: Int, from place: Int) -> Bool { end(ofNames: count, from: place) != nil }

    @inline(__always)
    private func end(ofNames count: Int, from place: Int) -> Int? {
        var place = Self.head &+ place
        for _ in 0..<count {
            guard place < size, let zero = memchr(address(of: place), 0, size &- place) else { return nil }
            place = UnsafeRawPointer(zero) - address(of: 0) + 1
        }
        return place
    }

    /// SETXATTR: a structure, the name, the value.
    private var hasAttribute: Bool {
        guard let end = end(ofNames: 1, from: 8) else { return false }
        return size &- end >= Int(truncatingIfNeeded: number(at: Self.head))
    }
}
