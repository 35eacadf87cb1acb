import CGrantFUSE
import Glibc
import GrantSystem

/// Tells the kernel to forget. Every call may wait for requests that the daemon has to answer, so it is made by a thread that
/// serves none, and with no lock held that a handler takes (fuse_lowlevel.h, fuse_lowlevel_notify_inval_inode).
///
/// Each returns 0, or a negative error number: -ENOENT when the kernel does not know the node or name, which is as good as done.
public struct Notifier: @unchecked Sendable {
    // Safe to share: libfuse writes each notification with one writev on the session's descriptor.
    let session: OpaquePointer

    /// The node's attributes, and with them the permission to use a cached name.
    public func invalidateAttributes(_ node: NodeID) -> Int32 { fuse_lowlevel_notify_inval_inode(session, node.rawValue, -1, 0) }

    /// The node's attributes and cached data; dirty pages are written back first (fs/fuse/inode.c, fuse_reverse_inval_inode).
    public func invalidateData(_ node: NodeID) -> Int32 { fuse_lowlevel_notify_inval_inode(session, node.rawValue, 0, 0) }

    /// Has the kernel let go of those of `nodes` that nobody uses, with names, attributes and pages (fs/fuse/dev.c, fuse_notify_prune; Linux 6.18 and later). It sends FORGET for each; the others
    /// stay as they are. -EINVAL where the kernel knows no such thing, which a call without nodes finds out.
    ///
    /// Waits for reads of the nodes that are under way. Dirty pages it meets only of files that somebody uses: the kernel writes back at `close` and at the end of a mapping.
    public func prune(_ nodes: ArraySlice<UInt64>) -> Int32 {
        // struct fuse_out_header and struct fuse_notify_prune_out; FUSE_NOTIFY_PRUNE is 9.
        let length = 32 + nodes.count * 8
        guard Self.mayPrune, let size = UInt32(exactly: length), let count = UInt32(exactly: nodes.count) else { return -EINVAL }
        var header: (UInt32, Int32, UInt64, UInt32, UInt32, UInt64) = (size, 9, 0, count, 0, 0)
        let written = withUnsafeMutableBytes(of: &header) { header in
            nodes.withUnsafeBytes { nodes in
                let parts = [
                    iovec(iov_base: header.baseAddress, iov_len: header.count),
                    iovec(iov_base: UnsafeMutableRawPointer(mutating: nodes.baseAddress), iov_len: nodes.count),
                ]
                return writev(fuse_session_fd(session), parts, 2)
            }
        }
        return written == length ? 0 : -errno
    }

    /// Of tests: false where a kernel is to be taken for one that cannot.
    private static let mayPrune = getenv("GRANTFS_TEST_NO_PRUNING") == nil

    /// Makes the next use of every name of the mount ask again, of names that are missing as well (fs/fuse/dev.c, fuse_notify_inc_epoch; Linux 6.16 and later, else -EINVAL). Waits for nobody.
    public func expireAllEntries() -> Int32 {
        // struct fuse_out_header; FUSE_NOTIFY_INC_EPOCH is 8.
        var header: (UInt32, Int32, UInt64) = (16, 8, 0)
        return write(fuse_session_fd(session), &header, 16) == 16 ? 0 : -errno
    }

    /// Has the kernel take a file for no shorter than it is: `byte` is the one at `place`, its last (fs/fuse/dev.c, fuse_notify_store).
    public func store(_ byte: UInt8, at place: off_t, of node: NodeID) -> Int32 {
        var byte = byte
        return withUnsafeMutablePointer(to: &byte) { byte -> Int32 in
            var vector = fuse_bufvec()
            vector.count = 1
            vector.buf.size = 1
            vector.buf.mem = UnsafeMutableRawPointer(byte)
            vector.buf.fd = -1
            return fuse_lowlevel_notify_store(session, node.rawValue, place, &vector, fuse_buf_copy_flags(rawValue: 0))
        }
    }

    /// Makes the kernel take a file for longer than any is, at a place that nobody can guess, so that it asks for what lies at or behind the true end, and
    /// answers by itself with no number that means anything (lseek(2), SEEK_END; fs/fuse/dev.c, fuse_notify_store). For files that are never to be
    /// used again by this node id: what comes of it for the rest is nothing.
    public func obscureSize(_ node: NodeID) -> Int32 {
        let place = off_t.random(in: 1 << 49..<1 << 50) << 12
        let result = store(0, at: place, of: node)
        // Only that page, which nobody else has.
        return result == 0 ? fuse_lowlevel_notify_inval_inode(session, node.rawValue, place, 1) : result
    }

    /// `expireEntry` for `length` bytes at `name`, with a 0 behind them: the library sends that as well.
    public func expireEntry(_ name: UnsafePointer<CChar>, length: Int, in parent: NodeID) -> Int32 {
        let result = cfuse3_expire_entry(session, parent.rawValue, name, length)
        return result == -ENOSYS ? fuse_lowlevel_notify_inval_entry(session, parent.rawValue, name, length) : result
    }

    /// Drops a name with all that the kernel knows below it, but for what is in use. What is mounted below it is detached. Waits for the lock of
    /// `parent`, which whoever lists it may hold for ever: never for a name at the root.
    public func invalidateTree(_ name: [UInt8], in parent: NodeID) -> Int32 {
        withCString(name) { fuse_lowlevel_notify_inval_entry(session, parent.rawValue, $0, name.count) }
    }

    /// Drops a name of a file, and the file with it when nobody uses it. Waits for the lock of `parent`, as `expireEntry`.
    public func invalidateEntry(_ name: UnsafePointer<CChar>, length: Int, in parent: NodeID) -> Int32 {
        fuse_lowlevel_notify_inval_entry(session, parent.rawValue, name, length)
    }

    /// Makes the next use of `name` ask again, without detaching what is mounted below; falls back to dropping the name where
    /// the kernel cannot expire (before 6.2).
    public func expireEntry(_ name: [UInt8], in parent: NodeID) -> Int32 {
        withCString(name) { expireEntry($0, length: name.count, in: parent) }
    }
}
