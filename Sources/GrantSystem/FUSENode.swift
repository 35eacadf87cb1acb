import CGrantSystem
import Glibc

/// A file of a FUSE filesystem as the kernel knows it: by the numbers that the daemon gave it. A daemon that uses no number twice tells by
/// them a directory from one that is shown under its name later.
public struct FUSENode: Hashable, Sendable {
    public let id: UInt64
    public let generation: UInt32

    /// The file behind a descriptor. Never blocks. Throws EOPNOTSUPP when its filesystem is no FUSE filesystem.
    public init(of descriptor: borrowing FileDescriptor) throws(Errno) { self = try FUSENode.of(descriptor.number, []) }

    /// What a name in a directory leads to; a link is not followed. The daemon is asked for the name, so it hangs when that does. Throws
    /// ENOENT when there is none.
    public static func named(_ name: [UInt8], in directory: borrowing FileDescriptor) throws(Errno) -> FUSENode {
        try of(directory.number, name)
    }

    private static func of(_ directory: Int32, _ name: [UInt8]) throws(Errno) -> FUSENode {
        var (id, generation): (UInt64, UInt32) = (0, 0)
        _ = try Errno.check(withCString(name) { clinux_fuse_node(directory, $0, false, &id, &generation) })
        return FUSENode(id: id, generation: generation)
    }

    private init(id: UInt64, generation: UInt32) { (self.id, self.generation) = (id, generation) }
}
