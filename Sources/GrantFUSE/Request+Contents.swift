// What a request brings besides what the library passes on. Of the worker's thread.
extension Request {
    /// Its kind: enum fuse_opcode of linux/fuse.h, as the kernel sent it.
    public var opcode: UInt32 { worker.pointee.opcode.load(ordering: .relaxed) }

    /// A number of the structure that its kind brings, so many bytes behind the header (struct fuse_in_header); 0 where there is none.
    public func word(at place: Int) -> UInt32 {
        let (head, size) = (40, 4)
        guard worker.pointee.messageSize.load(ordering: .relaxed) >= head &+ place &+ size else { return 0 }
        let message = UnsafeRawPointer(bitPattern: worker.pointee.message.load(ordering: .relaxed))
        return message?.loadUnaligned(fromByteOffset: head &+ place, as: UInt32.self) ?? 0
    }
}
