import CGrantSystem
import Glibc
import GrantSystem
import Synchronization

/// Reads a directory by getdents64(2) and returns its entries in order.
///
/// Positions are the filesystem's own (d_off), so they stay valid while entries are added and
/// removed.
///
/// Locking: belongs to its open directory's lock, which is rank 3 (a system call is allowed, a
/// reply is not).
public struct DirectoryStream {
    private var buffer: Buffer?
    private var next = 0
    private var end = 0
    /// The position of the entry at `next`.
    private var position: UInt64 = 0

    /// Whether later parts of this listing omit attributes. nil before the second part.
    public var omitsAttributes: Bool?

    /// How likely the kernel already knows the files of this listing.
    ///
    /// Above 0, a lookup of known nodes comes first.
    public var familiarity: Int8 = 0

    /// Entries that were read and not yet returned.
    ///
    /// The number of buffers is limited, because a program could open many directories and read a
    /// little of each. Above the limit, the remaining entries are read again with the next part.
    private final class Buffer {
        static let size = 32 << 10
        static let most = 1024
        static let count = Atomic<Int>(0)
        let bytes = UnsafeMutableRawPointer.allocate(byteCount: size, alignment: 16)

        init() { Self.count.wrappingAdd(1, ordering: .relaxed) }
        deinit {
            bytes.deallocate()
            Self.count.wrappingSubtract(1, ordering: .relaxed)
        }
    }
    /// The size of struct linux_dirent64 before the name.
    private static let headSize = 19

    /// One entry. `name` is NUL-terminated and valid until the next call.
    public struct Entry {
        public let inode: UInt64
        /// The position of the following entry.
        public let offset: UInt64
        /// DT_*
        public let type: UInt8
        public let name: UnsafePointer<CChar>
    }

    public init() {}

    /// A stream whose descriptor is at an unknown position: the first access seeks.
    static var unknown: DirectoryStream {
        var stream = DirectoryStream()
        stream.position = .max
        return stream
    }

    /// Writes the position for the next daemon. Buffered entries are dropped and read again.
    func handOver(to state: inout HandoverWriter) {
        state.put(position)
        state.put(omitsAttributes.map { $0 ? 1 : 0 } ?? 2 as UInt8)
        state.put(familiarity)
    }

    init(from state: inout HandoverReader) throws(Errno) {
        position = try state.take()
        let bare: UInt8 = try state.take()
        omitsAttributes = bare == 2 ? nil : bare == 1
        familiarity = try state.take()
        // Marks entries as left, so that the next part begins with a seek.
        (next, end) = (0, 1)
    }

    /// Seeks to `offset` as telldir(3) returned it. Returns 0 or an error number.
    ///
    /// Position 0 starts over and shows new entries.
    public mutating func seek(_ offset: UInt64, in descriptor: Int32) -> Int32 {
        // With an empty buffer the descriptor is already at that position.
        if offset == position, offset != 0, buffer != nil || next >= end { return 0 }
        let result = clinux_lseek(descriptor, Int64(bitPattern: offset), SEEK_SET)
        if result < 0 { return Errno.number(of: result) }
        next = 0
        end = 0
        position = offset
        return 0
    }

    /// Calls `body` with each entry from the current position on.
    ///
    /// Ends when `body` returns false (that entry comes again) or when the directory ends. Returns
    /// 0 or an error number.
    public mutating func forEach(in descriptor: Int32, _ body: (Entry) -> Bool) -> Int32 {
        let buffer = self.buffer ?? Buffer()
        self.buffer = Buffer.count.load(ordering: .relaxed) > Buffer.most ? nil : buffer
        var isDoubted = position == 0 && next >= end
        while true {
            if next >= end {
                let count = clinux_getdents(descriptor, buffer.bytes, Buffer.size)
                if count < 0 { return Errno.number(of: count) }
                if count == 0 {
                    // ext4 once takes the start for the end after a read at the end (fs/ext4/dir.c,
                    // ext4_dx_readdir: `last_pos` is still 0).
                    if isDoubted {
                        isDoubted = false
                        let result = clinux_lseek(descriptor, 0, SEEK_SET)
                        if result < 0 { return Errno.number(of: result) }
                        continue
                    }
                    self.buffer = nil
                    return 0
                }
                isDoubted = false
                next = 0
                end = min(count, Buffer.size)
            }
            // struct linux_dirent64: u64 d_ino, s64 d_off, u16 d_reclen, u8 d_type, char d_name[].
            let entry = UnsafeRawPointer(buffer.bytes + next)
            let length = Int(truncatingIfNeeded: entry.loadUnaligned(fromByteOffset: 16, as: UInt16.self))
            guard length > Self.headSize, length <= end - next else { return EIO }
            let offset = entry.loadUnaligned(fromByteOffset: 8, as: UInt64.self)
            let found = Entry(
                inode: entry.loadUnaligned(as: UInt64.self), offset: offset, type: entry.load(fromByteOffset: 18, as: UInt8.self),
                name: (entry + 19).assumingMemoryBound(to: CChar.self))
            // Names come from the filesystem, which may be crafted. An empty one would name the
            // directory itself.
            let goesOn = withExtendedLifetime(buffer) { found.name.pointee == 0 || body(found) }
            if !goesOn { return 0 }
            next &+= length
            position = offset
        }
    }
}
