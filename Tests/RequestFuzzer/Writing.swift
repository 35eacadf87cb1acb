/// A message as the kernel writes it (linux/fuse.h): struct fuse_in_header, 40 bytes, and the body
/// of its opcode.
struct Writing {
    private(set) var bytes: [UInt8] = []

    init(opcode: UInt32, unique: UInt64, node: UInt64, uid: UInt32, gid: UInt32, pid: UInt32) {
        put(0 as UInt32)
        put(opcode)
        put(unique)
        put(node)
        put(uid)
        put(gid)
        put(pid)
        put(0 as UInt32)
    }

    mutating func put(_ value: some FixedWidthInteger) { withUnsafeBytes(of: value.littleEndian) { bytes += $0 } }
    mutating func put(bytes more: [UInt8]) { bytes += more }
    /// Appends a name and its terminating zero.
    mutating func put(name: [UInt8]) { bytes += name + [0] }

    /// The message with its length in its header, cut to `count` bytes if that is less.
    func finished(cut count: Int = .max) -> [UInt8] {
        var result = Array(bytes.prefix(max(40, count)))
        withUnsafeBytes(of: UInt32(result.count).littleEndian) { result.replaceSubrange(0..<4, with: $0) }
        return result
    }
}
