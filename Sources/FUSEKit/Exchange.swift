import CFuse3
import CLinux
import Glibc

/// What the session reads requests with and writes answers with. Our own, for one reason: the library of version 3.14 has no name for
/// FUSE_HANDLE_KILLPRIV_V2, so that flag is set in the answer to FUSE_INIT on its way out. With it the kernel no longer asks for
/// `security.capability` before each write, and says in each change whether set-id bits are to be cleared instead of clearing them.
enum Exchange {
    static let handleKillPrivilegesV2: UInt32 = 1 << 28
    /// Which the library of version 3.14 has a name for, and never says: without it the kernel looks up one name at a time in each directory,
    /// and one that waits holds up all others.
    static let parallelDirectoryOperations: UInt32 = 1 << 18

    /// To be called after the session was mounted and before it receives.
    static func install(in session: OpaquePointer) -> Int32 {
        var functions = fuse_custom_io()
        functions.read = { descriptor, bytes, size, _ in Glibc.read(descriptor, bytes, size) }
        functions.writev = { descriptor, parts, count, context in
            let worker = clinux_worker()?.assumingMemoryBound(to: Worker.self)
            if let worker, worker.pointee.opcode.load(ordering: .relaxed) == Message.Opcode.initialize, count > 1 {
                Exchange.complete(&parts![1], context!.assumingMemoryBound(to: SessionContext.self).pointee)
            }
            return Glibc.writev(descriptor, parts, count)
        }
        return fuse_session_custom_io(session, &functions, fuse_session_fd(session))
    }

    /// Sets the flags in struct fuse_init_out, where both sides want them.
    private static func complete(_ answer: inout iovec, _ context: borrowing SessionContext) {
        let flags = 12
        let wanted = parallelDirectoryOperations | (context.options.killsSetID ? handleKillPrivilegesV2 : 0)
        guard context.offered & wanted != 0, answer.iov_len >= flags + 4 else { return }
        let value = answer.iov_base.loadUnaligned(fromByteOffset: flags, as: UInt32.self)
        answer.iov_base.storeBytes(of: value | context.offered & wanted, toByteOffset: flags, as: UInt32.self)
    }
}
