import CGrantFUSE
import CGrantSystem
import Glibc

/// Reads requests from /dev/fuse and writes replies to it, in place of the library.
///
/// It sets flags in the reply to FUSE_INIT for which libfuse 3.14 has no name, or which it never
/// sets. If a later library sets them, nothing changes.
/// - FUSE_HANDLE_KILLPRIV_V2: the kernel no longer asks for `security.capability` before each
///   write. It marks each change that must clear set-id bits instead of clearing them.
/// - FUSE_DIRECT_IO_ALLOW_MMAP: a file opened past the cache (FOPEN_DIRECT_IO) can still be mapped
///   shared (Linux 6.6).
enum DeviceIO {
    /// Allows concurrent lookups in a directory. libfuse 3.14 names this flag and never sets it.
    ///
    /// Without it the kernel looks up one name at a time in each directory, and one that waits
    /// blocks all others.
    static let parallelDirectoryOperations: UInt64 = 1 << 18
    static let handleKillPrivilegesV2: UInt64 = 1 << 28
    /// Announces a second word of flags.
    static let extended: UInt64 = 1 << 30
    static let mapsDirectly: UInt64 = 1 << 36

    /// Installs the functions, after the session was mounted and before it receives.
    ///
    /// `descriptor`: the descriptor for reads and writes.
    static func install(in session: OpaquePointer, on descriptor: Int32) -> Int32 {
        var functions = fuse_custom_io()
        functions.read = { descriptor, bytes, size, _ in Glibc.read(descriptor, bytes, size) }
        functions.writev = { descriptor, parts, count, context in
            let worker = clinux_worker()?.assumingMemoryBound(to: Worker.self)
            if let worker, worker.pointee.opcode.load(ordering: .relaxed) == Message.Opcode.initialize, count > 1 {
                let context = context!.assumingMemoryBound(to: SessionContext.self)
                DeviceIO.complete(&parts![1], context.pointee)
                let answer = UnsafeBufferPointer(start: parts, count: Int(truncatingIfNeeded: count)).flatMap {
                    Array(UnsafeRawBufferPointer(start: $0.iov_base, count: $0.iov_len))
                }
                context.pointee.negotiation.answer = answer
                if context.pointee.isReplaying { return answer.count }
            }
            return Glibc.writev(descriptor, parts, count)
        }
        return fuse_session_custom_io(session, &functions, descriptor)
    }

    /// Sets the flags in struct fuse_init_out that both sides want.
    private static func complete(_ answer: inout iovec, _ context: borrowing SessionContext) {
        var wanted = parallelDirectoryOperations
        if context.options.killsSetID { wanted |= handleKillPrivilegesV2 }
        if context.mapsDirectly { wanted |= mapsDirectly | extended }
        wanted &= context.offered
        let (low, high) = (12, 32)
        guard answer.iov_len >= high + 4 else { return }
        for (place, bits) in [(low, UInt32(truncatingIfNeeded: wanted)), (high, UInt32(truncatingIfNeeded: wanted >> 32))] where bits != 0 {
            let value = answer.iov_base.loadUnaligned(fromByteOffset: place, as: UInt32.self)
            answer.iov_base.storeBytes(of: value | bits, toByteOffset: place, as: UInt32.self)
        }
    }
}
