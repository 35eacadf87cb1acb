import CGrantFUSE

extension fuse_bufvec {
    /// The bytes of a vector with one buffer in memory. It is nil for any other vector.
    ///
    /// Every vector has one buffer as long as FUSE_CAP_SPLICE_READ is not requested. Valid as long
    /// as the library's buffer.
    public var contiguousBytes: UnsafeRawBufferPointer? {
        guard count == 1, buf.flags.rawValue & FUSE_BUF_IS_FD.rawValue == 0, let memory = buf.mem, off <= buf.size else { return nil }
        return UnsafeRawBufferPointer(start: memory + off, count: buf.size - off)
    }
}
