import CGrantFUSE
import CGrantSystem
import Glibc
import GrantSystem

// Requests that a crashed daemon had received. The kernel (6.9) resends all of them, with a mark
// (FUSE_NOTIFY_RESEND). On older kernels `CrashedRequests` has them.
extension Session {
    /// Whether the kernel can resend. Known after its first request.
    public var canResend: Bool { context.pointee.canResend }

    /// Makes the kernel resend every request that was received and not answered by any daemon.
    ///
    /// Call it before this daemon receives requests. Returns 0 or a negative error number.
    public func requestResend() -> Int32 {
        // struct fuse_out_header. FUSE_NOTIFY_RESEND is 7.
        var header: (UInt32, Int32, UInt64) = (16, 7, 0)
        return write(device, &header, 16) == 16 ? 0 : -errno
    }

    /// Whether to serve a request that another daemon may have started.
    ///
    /// Returns false if it may have been executed and is not idempotent, and after several daemons
    /// died with it.
    @inline(never)
    func mayReplay(_ message: Message) -> Bool {
        guard let page = context.pointee.options.supervised else { return true }
        let unique = message.unique & ~Message.resentBit
        let suspects = UnsafeBufferPointer(
            start: clinux_supervised_suspects(page), count: Int(clamping: min(page.pointee.suspect_count, UInt32(CLINUX_SUSPECTS))))
        return suspects.first { $0.unique == unique }.map { Message.mayBeReplayed($0) } ?? true
    }
}

extension Worker {
    /// Records for the next daemon that the request is about to be executed.
    @inline(__always)
    func recordStart(_ message: Message) {
        guard let record else { return }
        record.pointee.opcode = message.recordedOpcode
        clinux_record_request(record, message.unique & ~Message.resentBit)
    }

    /// Records that the request was answered, or will be started over.
    @inline(__always)
    func recordEnd() {
        if let record { clinux_record_request(record, 0) }
    }
}

extension Message {
    /// Marks the number of a request that may have been received before (FUSE_UNIQUE_RESEND).
    static var resentBit: UInt64 { 1 << 63 }
    /// FUSE_HAS_RESEND, in `offered`.
    static var resendOffered: UInt64 { 1 << 39 }

    @inline(__always)
    var isResent: Bool { unique & Self.resentBit != 0 }

    /// The opcode, marked for a write that appends.
    @inline(__always)
    var recordedOpcode: UInt32 {
        // The flags in struct fuse_write_in.
        opcode == Opcode.write && number(at: 72) & UInt32(bitPattern: O_APPEND) != 0 ? opcode | Self.appends : opcode
    }

    private static var appends: UInt32 { 1 << 31 }

    /// Whether a request that was running when a daemon died is executed again.
    static func mayBeReplayed(_ suspect: clinux_suspect) -> Bool {
        if suspect.deaths >= maxDeaths {
            let kind = suspect.opcode & ~appends
            SystemLog.write(.error, "a request of kind \(kind) was under way when \(suspect.deaths) daemons died: it is refused")
            return false
        }
        return isIdempotent(suspect.opcode)
    }

    /// How many daemons may die with a request.
    private static var maxDeaths: UInt32 { 2 }

    /// The number of a raw request.
    static func unique(of message: [UInt8]) -> UInt64 { message.withUnsafeBytes { Message($0).unique } }

    /// Whether executing it twice in a row has the same effect.
    ///
    /// A repeated lookup leaves one count too many, which costs some memory.
    static func isIdempotent(_ recorded: UInt32) -> Bool {
        switch recorded {
        // SYMLINK, MKNOD, MKDIR, UNLINK, RMDIR, RENAME, LINK, SETXATTR, REMOVEXATTR, CREATE, IOCTL,
        // FALLOCATE, RENAME2, COPY_FILE_RANGE, TMPFILE, COPY_FILE_RANGE_64
        case 6, 8, 9, 10, 11, 12, 13, 21, 24, 35, 39, 43, 45, 47, 51, 53: false
        default: recorded & appends == 0
        }
    }
}
