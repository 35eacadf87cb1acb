import CGrantFUSE
import CGrantSystem
import Glibc

/// A raw request as the kernel wrote it, for fields that the library hides.
///
/// It is struct fuse_in_header (40 bytes) of linux/fuse.h, then the structure of its opcode.
struct Message {
    private let bytes: UnsafeRawBufferPointer

    /// Reads a buffer that holds one whole request in memory.
    ///
    /// That is so as long as FUSE_CAP_SPLICE_READ is not requested.
    @inline(__always)
    init(_ buffer: borrowing fuse_buf, _ received: Int32) {
        bytes = UnsafeRawBufferPointer(start: buffer.mem, count: max(0, Int(truncatingIfNeeded: received)))
    }

    init(_ bytes: UnsafeRawBufferPointer) { self.bytes = bytes }

    enum Opcode {
        static let forget: UInt32 = 2
        static let getAttributes: UInt32 = 3
        static let setAttributes: UInt32 = 4
        static let read: UInt32 = 15
        static let write: UInt32 = 16
        static let sync: UInt32 = 20
        static let initialize: UInt32 = 26
        static let syncDirectory: UInt32 = 30
        static let interrupt: UInt32 = 36
        static let create: UInt32 = 35
        static let batchForget: UInt32 = 42
        static let allocate: UInt32 = 43
        static let seek: UInt32 = 46
        static let copy: UInt32 = 47
        static let createNameless: UInt32 = 51
        static let getExtendedAttributes: UInt32 = 52
    }

    var size: Int { bytes.count }

    /// A copy of the bytes. Allocates: not for the hot path.
    var copy: [UInt8] { Array(bytes) }

    @inline(__always)
    var opcode: UInt32 { number(at: 4) }

    /// Whether the change must clear set-user-id and set-group-id bits.
    ///
    /// Its caller then lacks CAP_FSETID: FUSE_WRITE_KILL_SUIDGID of struct fuse_write_in,
    /// FATTR_KILL_SUIDGID of struct fuse_setattr_in.
    @inline(__always)
    var killsSetID: Bool {
        switch opcode {
        case Opcode.write: number(at: 60) & 1 << 2 != 0
        case Opcode.setAttributes: number(at: 40) & 1 << 11 != 0
        default: false
        }
    }

    /// Whether the request is known to take long, so that another reader should be ready.
    ///
    /// It is a large transfer, which the kernel splits into several requests, or a wait for the
    /// disk or the kernel.
    @inline(__always)
    var mayTakeLong: Bool {
        switch opcode {
        case Opcode.read: number(at: 56) >= Self.largeTransfer
        case Opcode.write: bytes.count >= Self.largeTransfer
        case Opcode.sync, Opcode.syncDirectory, Opcode.allocate, Opcode.seek, Opcode.copy: true
        default: false
        }
    }

    private static let largeTransfer = 128 << 10

    /// The kernel's number for the request.
    var unique: UInt64 { wide(at: 8) }

    /// Of an INTERRUPT: the number of the interrupted request (struct fuse_interrupt_in).
    var interrupted: UInt64 { wide(at: 40) }

    /// The flags that the kernel offers in struct fuse_init_in.
    var offered: UInt64 {
        guard opcode == Opcode.initialize else { return 0 }
        let low = UInt64(truncatingIfNeeded: number(at: 52))
        return low & DeviceIO.extended != 0 ? low | UInt64(truncatingIfNeeded: number(at: 56)) << 32 : low
    }

    /// Replaces the opcode of two requests that libfuse 3.14 would answer with ENOSYS.
    ///
    /// Each equals another request in all its content.
    /// - FUSE_TMPFILE (open(2) with O_TMPFILE) is FUSE_CREATE with another number (fs/fuse/dir.c,
    ///   fuse_create_open). Its flags distinguish them.
    /// - FUSE_STATX (statx(2) with a request for the birth time) begins as FUSE_GETATTR does
    ///   (struct fuse_statx_in) and needs another reply. `Request.wantsBirth` distinguishes them.
    @inline(__always)
    static func translateOpcode(_ buffer: borrowing fuse_buf, _ opcode: UInt32) {
        if opcode < Opcode.createNameless { return }
        let other =
            switch opcode {
            case Opcode.createNameless: Opcode.create
            case Opcode.getExtendedAttributes: Opcode.getAttributes
            default: opcode
            }
        buffer.mem.storeBytes(of: other, toByteOffset: 4, as: UInt32.self)
    }

    /// `place` lies within the message.
    @inline(__always)
    func address(of place: Int) -> UnsafeRawPointer { bytes.baseAddress! + place }

    func wide(at place: Int) -> UInt64 {
        place + 8 <= bytes.count ? bytes.loadUnaligned(fromByteOffset: place, as: UInt64.self) : 0
    }

    @inline(__always)
    func number(at place: Int) -> UInt32 {
        place + 4 <= bytes.count ? bytes.loadUnaligned(fromByteOffset: place, as: UInt32.self) : 0
    }
}
