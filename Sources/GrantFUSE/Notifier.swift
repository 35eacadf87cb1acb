import CGrantFUSE
import CGrantSystem
import Glibc
import GrantSystem

/// Sends invalidations to the kernel.
///
/// A call may wait for requests that the daemon must answer. So a thread that serves none makes it,
/// and holds no lock that a handler takes (fuse_lowlevel.h, fuse_lowlevel_notify_inval_inode).
///
/// Each returns 0 or a negative error number. -ENOENT means that the kernel does not know the node
/// or name, so there is nothing to invalidate.
public struct Notifier: @unchecked Sendable {
    // Sendable: libfuse writes each notification with one writev on the session's descriptor.
    let session: OpaquePointer

    /// Invalidates a node's attributes, and with them the permission to use a cached name.
    public func invalidateAttributes(_ node: NodeID) -> Int32 { fuse_lowlevel_notify_inval_inode(session, node.rawValue, -1, 0) }

    /// Invalidates a node's attributes and cached data.
    ///
    /// Dirty pages are written back first (fs/fuse/inode.c, fuse_reverse_inval_inode).
    public func invalidateData(_ node: NodeID) -> Int32 { fuse_lowlevel_notify_inval_inode(session, node.rawValue, 0, 0) }

    /// Invalidates `length` bytes of a node's cached data from `place` on.
    public func invalidateData(_ node: NodeID, at place: off_t, length: off_t) -> Int32 {
        fuse_lowlevel_notify_inval_inode(session, node.rawValue, place, length)
    }

    /// Overwrites the cached part of `length` bytes of a node's data with zeros.
    ///
    /// Uncached pages stay uncached, so reading them sends a request. Call it only after
    /// `obscureSize`. Waits for requests about these pages. Returns 0, or the first error.
    ///
    /// A store that covers a whole page, or the whole part of a page inside the file, makes the
    /// page valid (fs/fuse/dev.c, fuse_notify_store). So each store here begins behind the first
    /// byte of a page and ends with the first byte of the next. The file must be longer than that.
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

    /// Makes the kernel evict unused nodes of `nodes`, with names, attributes and pages.
    ///
    /// The kernel sends FORGET for each (fs/fuse/dev.c, fuse_notify_prune, Linux 6.18). Nodes in
    /// use are unchanged. Returns -EINVAL on older kernels. A call without nodes tests for that.
    ///
    /// Waits for running reads of the nodes. Only files in use have dirty pages, because the kernel
    /// writes back on `close` and when a mapping ends.
    public func prune(_ nodes: ArraySlice<UInt64>) -> Int32 {
        // struct fuse_out_header and struct fuse_notify_prune_out. FUSE_NOTIFY_PRUNE is 9.
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
    private static let mayPrune = !InjectedFault.noPruning.isPresent

    /// Expires every name of the mount, including negative entries. Never waits.
    ///
    /// Their next use sends a request (fs/fuse/dev.c, fuse_notify_inc_epoch). Returns -EINVAL
    /// before Linux 6.16.
    public func expireAllEntries() -> Int32 {
        // struct fuse_out_header. FUSE_NOTIFY_INC_EPOCH is 8.
        var header: (UInt32, Int32, UInt64) = (16, 8, 0)
        return write(fuse_session_fd(session), &header, 16) == 16 ? 0 : -errno
    }

    /// Raises the kernel's size of a file to `size` bytes if it is smaller.
    ///
    /// Caches nothing, and overwrites no cached byte: the bytes of this store cannot be read, and
    /// the kernel takes the new size before it copies them (fs/fuse/dev.c, fuse_notify_store). From
    /// then on it may wait, for a request about the last page.
    public func lengthen(_ node: NodeID, to size: off_t) -> Int32 {
        guard size > 0, let unreadable = Self.unreadable else { return size > 0 ? -ENOMEM : 0 }
        // struct fuse_out_header and struct fuse_notify_store_out. FUSE_NOTIFY_STORE is 4.
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

    /// The address of a page without read permission.
    private static let unreadable: UInt? = {
        let page = mmap(nil, 1, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
        return page == MAP_FAILED ? nil : UInt(bitPattern: page)
    }()

    /// Raises the kernel's size of a file above every real size.
    ///
    /// It stores one byte at a random place (fs/fuse/dev.c, fuse_notify_store). The kernel then
    /// requests data at or behind the true end. Its own replies carry no meaningful size, for
    /// example to lseek(2) with SEEK_END. Use it only for files that are never used by this node id
    /// again.
    public func obscureSize(_ node: NodeID) -> Int32 {
        let place = off_t.random(in: 1 << 49..<1 << 50) << 12
        let result = lengthen(node, to: place + 1)
        // Drops only that page, which no program uses.
        return result == 0 ? invalidateData(node, at: place, length: 1) : result
    }

    /// Expires the name of `length` bytes at `name`.
    ///
    /// A NUL must follow, which the library sends as well.
    public func expireEntry(_ name: UnsafePointer<CChar>, length: Int, in parent: NodeID) -> Int32 {
        let result = cfuse3_expire_entry(session, parent.rawValue, name, length)
        return result == -ENOSYS ? fuse_lowlevel_notify_inval_entry(session, parent.rawValue, name, length) : result
    }

    /// Drops a name with its cached subtree, except nodes in use.
    ///
    /// Detaches mounts below it. Waits for the lock of `parent`, which a process that lists it can
    /// hold forever. Never call it for a name at the root.
    public func invalidateTree(_ name: [UInt8], in parent: NodeID) -> Int32 {
        withCString(name) { fuse_lowlevel_notify_inval_entry(session, parent.rawValue, $0, name.count) }
    }

    /// Drops a file's name, and the file if it is unused.
    ///
    /// Waits for the lock of `parent`, as `expireEntry` does.
    public func invalidateEntry(_ name: UnsafePointer<CChar>, length: Int, in parent: NodeID) -> Int32 {
        fuse_lowlevel_notify_inval_entry(session, parent.rawValue, name, length)
    }

    /// Returns when the kernel has copied earlier listings of a directory to programs.
    ///
    /// It holds the directory's lock while it copies, and takes it for the invalidation of a name
    /// (fs/fuse/dir.c, fuse_reverse_inval_entry). The name here is a slash, which no entry has.
    public func waitForListings(of directory: NodeID) {
        withCString([UInt8(ascii: "/")]) { _ = fuse_lowlevel_notify_inval_entry(session, directory.rawValue, $0, 1) }
    }

    /// Makes the next use of `name` send a request, without detaching mounts below it.
    ///
    /// Drops the name if the kernel cannot expire names (before 6.2).
    public func expireEntry(_ name: [UInt8], in parent: NodeID) -> Int32 {
        withCString(name) { expireEntry($0, length: name.count, in: parent) }
    }
}
