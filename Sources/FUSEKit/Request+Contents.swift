// What a request brings besides what the library passes on. Of the worker's thread.
extension Request {
    /// Its kind: enum fuse_opcode of linux/fuse.h, as the kernel sent it.
    public var opcode: UInt32 { worker.pointee.opcode.load(ordering: .relaxed) }

    /// The first number of the structure that its kind brings: flags of OPEN, OPENDIR, CREATE, TMPFILE; what SETATTR changes. 0 where there is none.
    public var firstWord: UInt32 {
        guard worker.pointee.messageSize.load(ordering: .relaxed) >= 44 else { return 0 }
        // Behind struct fuse_in_header.
        let message = UnsafeRawPointer(bitPattern: worker.pointee.message.load(ordering: .relaxed))
        return message?.loadUnaligned(fromByteOffset: 40, as: UInt32.self) ?? 0
    }
}
