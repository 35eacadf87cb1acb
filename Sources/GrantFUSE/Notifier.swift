import CGrantFUSE
import CGrantSystem
import Glibc
import GrantSystem

/// Sends invalidations to the kernel. A call may wait for requests that the daemon must answer, so it is made by a thread that
/// serves none, with no lock held that a handler takes (fuse_lowlevel.h, fuse_lowlevel_notify_inval_inode).
///
/// Each returns 0 or a negative error number. -ENOENT means that the kernel does not know the node or name, which is as good as
/// done.
public struct Notifier: @unchecked Sendable {
    // Safe to share: libfuse writes each notification with one writev on the session's descriptor.
    let session: OpaquePointer

    /// Invalidates a node's attributes, and with them the permission to use a cached name.
    public func invalidateAttributes(_ node: NodeID) -> Int32 { fuse_lowlevel_notify_inval_inode(session, node.rawValue, -1, 0) }

    /// Invalidates a node's attributes and cached data; dirty pages are written back first (fs/fuse/inode.c,
    /// fuse_reverse_inval_inode).
    public func invalidateData(_ node: NodeID) -> Int32 { fuse_lowlevel_notify_inval_inode(session, node.rawValue, 0, 0) }

    /// Invalidates `length` bytes of a node's cached data from `place` on.
    public func invalidateData(_ node: NodeID, at place: off_t, length: off_t) -> Int32 {
        fuse_lowlevel_notify_inval_inode(session, node.rawValue, place, length)
    }

    /// Overwrites what is cached of `length` bytes of a node's data with zeros, and leaves what is not cached as it is: whoever reads
    /// that asks for it. Only after `obscureSize`. Waits for requests about these pages.
    ///
    /// A store that covers a whole page, or the part of it that is in the file, makes a page valid that was not (fs/fuse/dev.c,
    /// fuse_notify_store). So each one here begins behind the first byte of a page and ends with the first one of the next, in a
    /// file that is longer. 0, or the first error.
    public func overwriteCached(_ length: Int, at place: off_t, of node: NodeID) -> Int32 {
        var (at, end) = (place, place + length)
        while at < end {
            let next = min(end, (at + Self.piece - 1) / Self.piece * Self.piece + 1)
            let result = store(clinux_zeros(), next - at, at: at, of: node)
            if result != 0 { return result }
            at = next
        }
        return 0
    }

    /// No page is smaller, in bytes.
    private static let piece = off_t(CLINUX_ZEROS)

    private func store(_ bytes: UnsafeMutableRawPointer, _ length: Int, at place: off_t, of node: NodeID) -> Int32 {
        var vector = fuse_bufvec()
        vector.count = 1
        vector.buf.size = length
        vector.buf.mem = bytes
        vector.buf.fd = -1
        return fuse_lowlevel_notify_store(session, node.rawValue, place, &vector, fuse_buf_copy_flags(rawValue: 0))
    }

    /// Makes the kernel evict those of `nodes` that are not in use, with names, attributes and pages (fs/fuse/dev.c,
    /// fuse_notify_prune; Linux 6.18 and later), and send FORGET for each. Nodes in use stay as they are. -EINVAL on older kernels;
    /// a call without nodes tests for that.
    ///
    /// Waits for reads of the nodes that are under way. Only files in use have dirty pages: the kernel writes back on `close` and
    /// when a mapping ends.
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

    /// For tests: false simulates a kernel that cannot.
    private static let mayPrune = getenv("GRANTFS_TEST_NO_PRUNING") == nil

    /// Expires every name of the mount, also names that are cached as missing: their next use asks again (fs/fuse/dev.c,
    /// fuse_notify_inc_epoch; Linux 6.16 and later, else -EINVAL). Never waits.
    public func expireAllEntries() -> Int32 {
        // struct fuse_out_header; FUSE_NOTIFY_INC_EPOCH is 8.
        var header: (UInt32, Int32, UInt64) = (16, 8, 0)
        return write(fuse_session_fd(session), &header, 16) == 16 ? 0 : -errno
    }

    /// Makes the kernel take a file for `size` bytes long if it takes it for shorter. Caches nothing, and overwrites nothing that
    /// is cached: the bytes of this store cannot be read, and the kernel takes the new size before it copies them (fs/fuse/dev.c,
    /// fuse_notify_store). From then on it may wait, for a request about the last page.
    public func lengthen(_ node: NodeID, to size: off_t) -> Int32 {
        guard size > 0, let unreadable = Self.unreadable else { return size > 0 ? -ENOMEM : 0 }
        // struct fuse_out_header and struct fuse_notify_store_out; FUSE_NOTIFY_STORE is 4.
        let place = UInt64(truncatingIfNeeded: size - 1)
        var header: (UInt32, Int32, UInt64, UInt64, UInt64, UInt32, UInt32) = (41, 4, 0, node.rawValue, place, 1, 0)
        let written = withUnsafeMutableBytes(of: &header) { header in
            let parts = [
                iovec(iov_base: header.baseAddress, iov_len: header.count),
                iovec(iov_base: UnsafeMutableRawPointer(bitPattern: unreadable), iov_len: 1),
            ]
            return writev(fuse_session_fd(session), parts, 2)
        }
        return written >= 0 || errno == EFAULT ? 0 : -errno
    }

    /// The address of a page that nobody can read.
    private static let unreadable: UInt? = {
        let page = mmap(nil, 1, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
        return page == MAP_FAILED ? nil : UInt(bitPattern: page)
    }()

    /// Makes the kernel take a file for longer than any is, by a byte at a place that nobody can guess. Then it asks for what lies
    /// at or behind the true end, and its own answers carry no meaningful size (lseek(2), SEEK_END; fs/fuse/dev.c,
    /// fuse_notify_store). Only for files that are never used by this node id again.
    public func obscureSize(_ node: NodeID) -> Int32 {
        let place = off_t.random(in: 1 << 49..<1 << 50) << 12
        let result = lengthen(node, to: place + 1)
        // Drops only that page, which nobody else has.
        return result == 0 ? invalidateData(node, at: place, length: 1) : result
    }

    /// Expires the name of `length` bytes at `name`, followed by a NUL, which the library sends as well.
    public func expireEntry(_ name: UnsafePointer<CChar>, length: Int, in parent: NodeID) -> Int32 {
        let result = cfuse3_expire_entry(session, parent.rawValue, name, length)
        return result == -ENOSYS ? fuse_lowlevel_notify_inval_entry(session, parent.rawValue, name, length) : result
    }

    /// Drops a name with its cached subtree, except what is in use; detaches mounts below it. Waits for the lock of `parent`, which
    /// a process that lists it can hold for ever: never for a name at the root.
    public func invalidateTree(_ name: [UInt8], in parent: NodeID) -> Int32 {
        withCString(name) { fuse_lowlevel_notify_inval_entry(session, parent.rawValue, $0, name.count) }
    }

    /// Drops a file's name, and the file if nobody uses it. Waits for the lock of `parent`, as `expireEntry` does.
    public func invalidateEntry(_ name: UnsafePointer<CChar>, length: Int, in parent: NodeID) -> Int32 {
        fuse_lowlevel_notify_inval_entry(session, parent.rawValue, name, length)
    }

    /// Returns when the kernel has copied to programs what was read of a directory so far: it holds the directory's lock for that,
    /// and takes it for the invalidation of a name (fs/fuse/dir.c, fuse_reverse_inval_entry). No name contains a slash.
    public func waitForListings(of directory: NodeID) {
        withCString([UInt8(ascii: "/")]) { _ = fuse_lowlevel_notify_inval_entry(session, directory.rawValue, $0, 1) }
    }

    /// Makes the next use of `name` ask again, without detaching mounts below it; drops the name where the kernel cannot expire
    /// (before 6.2).
    public func expireEntry(_ name: [UInt8], in parent: NodeID) -> Int32 {
        withCString(name) { expireEntry($0, length: name.count, in: parent) }
    }
}
