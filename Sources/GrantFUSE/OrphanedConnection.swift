import CGrantFUSE
import CGrantSystem
import Glibc
import GrantSystem

extension Session {
    /// Clones the device, so that the connection lives until the clone is closed as well.
    ///
    /// It then outlives this process (fs/fuse/dev.c, FUSE_DEV_IOC_CLONE). Requests that this
    /// process took and did not answer then fail with ECONNABORTED.
    public func cloneDevice() throws(Errno) -> FileDescriptor {
        let device = try FileDescriptor.open("/dev/fuse".utf8, O_RDWR)
        _ = try Errno.check(clinux_clone_fuse_device(device.number, fuse_session_fd(pointer)))
        return device
    }
}

/// A connection whose daemon died, in the hands of another process.
///
/// The kernel takes notifications from any holder of the device, even after the connection was
/// aborted (fs/fuse/dev.c, fuse_dev_do_write checks that only for replies). So its caches can still
/// be invalidated.
public struct OrphanedConnection: ~Copyable, Sendable {
    private let device: FileDescriptor

    public init(device: consuming FileDescriptor) { self.device = device }

    /// Answers every request with ENOTCONN until the connection is aborted.
    public func refuseAll() {
        // The kernel requires room for the largest possible request (fs/fuse/dev.c,
        // fuse_dev_do_read).
        let size = Worker.bufferSize
        guard let buffer = mmap(nil, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), buffer != MAP_FAILED else { return }
        defer { munmap(buffer, size) }
        while true {
            let count = read(device.number, buffer, size)
            if count < 0 {
                if errno == EINTR || errno == EAGAIN || errno == ENOENT { continue }
                return
            }
            guard count >= 24 else { continue }
            // struct fuse_in_header
            let opcode = buffer.load(fromByteOffset: 4, as: UInt32.self)
            // These expect no reply.
            if opcode == Message.Opcode.forget || opcode == Message.Opcode.batchForget || opcode == Message.Opcode.interrupt { continue }
            // struct fuse_out_header
            var header: (UInt32, Int32, UInt64) = (16, 0 &- ENOTCONN, buffer.load(fromByteOffset: 8, as: UInt64.self))
            _ = write(device.number, &header, 16)
        }
    }

    /// Invalidates a node's attributes and data (FUSE_NOTIFY_INVAL_INODE).
    ///
    /// Waits for locked pages, and for dirty ones until their write was refused.
    public func invalidateData(_ node: UInt64) {
        // struct fuse_out_header and struct fuse_notify_inval_inode_out, from the beginning to the
        // end.
        var message: (UInt32, Int32, UInt64, UInt64, Int64, Int64) = (40, 2, 0, node, 0, 0)
        _ = write(device.number, &message, 40)
    }
}
