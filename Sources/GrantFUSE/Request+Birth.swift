import CGrantFUSE
import Glibc

/// A file's birth time, as statx(2) has it.
public struct Birth: Sendable {
    public let seconds: Int64
    public let nanoseconds: UInt32
    public init(seconds: Int64, nanoseconds: UInt32) { (self.seconds, self.nanoseconds) = (seconds, nanoseconds) }
}

extension Request {
    /// Whether the birth time is requested as well (FUSE_STATX, Linux 6.6).
    ///
    /// Then reply by `reply(attributes:birth:timeout:)`.
    public var wantsBirth: Bool { worker.pointee.opcode.load(ordering: .relaxed) == Message.Opcode.getExtendedAttributes }

    /// Replies to FUSE_STATX.
    ///
    /// - Parameters:
    ///   - birth: nil if the filesystem keeps none.
    ///   - timeout: In seconds.
    @discardableResult
    public consuming func reply(attributes: borrowing stat, birth: Birth?, timeout: Double) -> Bool {
        // struct fuse_statx_out (linux/fuse.h, 7.39), of which struct fuse_statx is all but the
        // first 32 bytes.
        let (size, start) = (288, 32)
        let answer = worker.pointee.buffer
        memset(answer, 0, size)
        func put<Value: BitwiseCopyable>(_ value: Value, at place: Int) {
            answer.storeBytes(of: value, toByteOffset: place, as: Value.self)
        }
        func put(_ time: timespec, at place: Int) {
            put(time.tv_sec, at: start + place)
            put(UInt32(truncatingIfNeeded: time.tv_nsec), at: start + place + 8)
        }
        // The timeout is clamped: a number that does not fit would trap.
        let whole = min(max(timeout, 0), 1e9).rounded(.down)
        put(UInt64(exactly: whole) ?? 0, at: 0)
        put(UInt32(exactly: (min(max(timeout - whole, 0), 0.999_999_999) * 1e9).rounded(.down)) ?? 0, at: 8)
        let (basic, born): (UInt32, UInt32) = (0x7ff, 0x800)
        put(birth == nil ? basic : basic | born, at: start)
        put(UInt32(truncatingIfNeeded: attributes.st_blksize), at: start + 4)
        put(UInt32(truncatingIfNeeded: attributes.st_nlink), at: start + 16)
        put(attributes.st_uid, at: start + 20)
        put(attributes.st_gid, at: start + 24)
        put(UInt16(truncatingIfNeeded: attributes.st_mode), at: start + 28)
        put(attributes.st_ino, at: start + 32)
        put(attributes.st_size, at: start + 40)
        put(attributes.st_blocks, at: start + 48)
        put(attributes.st_atim, at: 64)
        if let birth {
            put(birth.seconds, at: start + 80)
            put(birth.nanoseconds, at: start + 88)
        }
        put(attributes.st_ctim, at: 96)
        put(attributes.st_mtim, at: 112)
        // As the C library packs them (sys/sysmacros.h), which Swift does not import.
        let device = UInt64(truncatingIfNeeded: attributes.st_rdev)
        put(UInt32(truncatingIfNeeded: device >> 8 & 0xfff | device >> 32 & ~0xfff), at: start + 128)
        put(UInt32(truncatingIfNeeded: device & 0xff | device >> 12 & ~0xff), at: start + 132)
        return reply(bytes: answer, count: size)
    }
}
