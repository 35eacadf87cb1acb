// Fields of a request that the library does not pass on. For the worker's thread.
extension Request {
    /// The opcode as the kernel sent it (enum fuse_opcode, linux/fuse.h).
    public var opcode: UInt32 { worker.pointee.opcode.load(ordering: .relaxed) }

    /// A field of the opcode's structure, at an offset in bytes behind struct fuse_in_header.
    ///
    /// The result is 0 beyond the end of the message.
    public func word(at place: Int) -> UInt32 {
        let (head, size) = (40, 4)
        guard worker.pointee.messageSize.load(ordering: .relaxed) >= head &+ place &+ size else { return 0 }
        let message = UnsafeRawPointer(bitPattern: worker.pointee.message.load(ordering: .relaxed))
        return message?.loadUnaligned(fromByteOffset: head &+ place, as: UInt32.self) ?? 0
    }
}
