import CGrantFUSE
import Glibc

/// Packs directory entries for a READDIR or READDIRPLUS reply.
///
/// The structures are struct fuse_dirent and struct fuse_direntplus of linux/fuse.h.
public struct Listing {
    public let buffer: UnsafeMutableRawPointer
    public let size: Int
    public let plus: Bool
    public private(set) var used = 0

    public init(buffer: UnsafeMutableRawPointer, size: Int, plus: Bool) {
        self.buffer = buffer
        self.size = size
        self.plus = plus
    }

    private static let headerSize = 24
    // struct fuse_entry_out: nodeid, generation, two timeouts and their nanoseconds, struct
    // fuse_attr
    private static let entrySize = 128

    /// Whether an entry fits.
    ///
    /// Call it before the entry's node is looked up, so that no lookup is counted for an entry that
    /// is not sent.
    public func hasRoom(for name: UnsafePointer<CChar>) -> Bool {
        let length = Self.headerSize + (plus ? Self.entrySize : 0) + strlen(name)
        return used &+ (length &+ 7) & ~7 <= size
    }

    /// Adds an entry that fits. In a plus listing `parameters.ino` 0 means an entry without a node.
    public mutating func add(_ parameters: inout fuse_entry_param, _ name: UnsafePointer<CChar>, next: UInt64) {
        let place = (buffer + used).assumingMemoryBound(to: CChar.self)
        // The library does not use the request argument (fuse_lowlevel.c).
        if plus {
            used &+= fuse_add_direntry_plus(nil, place, size - used, name, &parameters, off_t(truncatingIfNeeded: next))
        } else {
            used &+= fuse_add_direntry(nil, place, size - used, name, &parameters.attr, off_t(truncatingIfNeeded: next))
        }
    }

    /// Calls `body` with each node that a plus listing counted.
    ///
    /// These lookups must be undone if the reply did not arrive.
    public func forEachNode(_ body: (UInt64) -> Void) {
        guard plus else { return }
        var place = 0
        while place < used {
            let node = buffer.load(fromByteOffset: place, as: UInt64.self)
            let length = Int(truncatingIfNeeded: buffer.load(fromByteOffset: place + Self.entrySize + 16, as: UInt32.self))
            if node != 0 { body(node) }
            place += (Self.entrySize + Self.headerSize + length + 7) & ~7
        }
    }
}
