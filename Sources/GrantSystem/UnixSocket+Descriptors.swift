import CGrantSystem
import Glibc

// Descriptors that are passed on to another process (unix(7), SCM_RIGHTS). Both processes then
// share the open file, with its position and its locks.
extension UnixSocket {
    /// Sends copies of `descriptors`, which stay open here.
    ///
    /// Each batch is acknowledged before the next: the kernel limits the descriptors that a user
    /// has in flight to RLIMIT_NOFILE (ETOOMANYREFS).
    ///
    /// - Parameter deadline: Nanoseconds of `Clock.monotonic`.
    /// - Throws: ETIMEDOUT, EPIPE, ECONNRESET.
    public func send(descriptors: [Int32], deadline: Int64) throws(Errno) {
        for start in stride(from: 0, to: descriptors.count, by: Self.descriptorsAtOnce) {
            let batch = descriptors[start..<min(descriptors.count, start + Self.descriptorsAtOnce)]
            while true {
                let result = batch.withUnsafeBufferPointer {
                    clinux_socket_send_descriptors(number, $0.baseAddress, Int32(clamping: $0.count))
                }
                if result == -EINTR { continue }
                if result != -EAGAIN {
                    _ = try Errno.check(result)
                    break
                }
                try Poll.wait(number, writing: true, deadline: deadline)
            }
            _ = try receive(1, deadline: deadline)
        }
    }

    /// Receives `count` descriptors, which the caller closes. None stays open if this throws.
    ///
    /// - Throws: EBADMSG if this process has no room for them (RLIMIT_NOFILE) or if something else
    ///   arrived.
    public func receive(descriptors count: Int, deadline: Int64) throws(Errno) -> [Int32] {
        var received: [Int32] = []
        var batch = [Int32](repeating: -1, count: Self.descriptorsAtOnce)
        do throws(Errno) {
            while received.count < count {
                let found = batch.withUnsafeMutableBufferPointer {
                    clinux_socket_receive_descriptors(number, $0.baseAddress, Int32(clamping: min($0.count, count - received.count)))
                }
                if found == -EINTR { continue }
                if found == -EAGAIN {
                    try Poll.wait(number, writing: false, deadline: deadline)
                    continue
                }
                received += batch[..<Int(truncatingIfNeeded: try Errno.check(found))]
                try send([0], deadline: deadline)
            }
            return received
        } catch {
            for descriptor in received { close(descriptor) }
            throw error
        }
    }

    private static let descriptorsAtOnce = Int(truncatingIfNeeded: CLINUX_DESCRIPTORS_AT_ONCE)
}
