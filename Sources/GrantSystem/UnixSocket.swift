import CGrantSystem
import Glibc

/// A Unix stream socket that never blocks: every wait has a deadline.
public struct UnixSocket: ~Copyable, Sendable {
    private let descriptor: FileDescriptor

    private init(_ descriptor: consuming FileDescriptor) { self.descriptor = descriptor }

    /// Takes ownership of one end of an existing connection.
    public init(connected descriptor: consuming FileDescriptor) { self.descriptor = descriptor }

    /// socketpair(2).
    public static func pair() throws(Errno) -> SocketPair {
        var ends: [Int32] = [-1, -1]
        _ = try Errno.check(clinux_socket_pair(&ends))
        return SocketPair(UnixSocket(FileDescriptor(owning: ends[0])), UnixSocket(FileDescriptor(owning: ends[1])))
    }

    /// Gives up ownership.
    public consuming func release() -> FileDescriptor { descriptor }

    /// The descriptor, to wait on. This value keeps ownership.
    public var number: Int32 { descriptor.number }

    /// Listens at `name` in the open directory, with mode 0600.
    ///
    /// - Throws: EADDRINUSE if the name is taken.
    public static func listen(directory: Int32, name: String, backlog: Int32 = 64) throws(Errno) -> UnixSocket {
        UnixSocket(FileDescriptor(owning: try Errno.check(clinux_socket_listen(directory, name, backlog))))
    }

    /// Connects to `name` in the open directory without waiting.
    ///
    /// - Throws: EAGAIN if the server's queue is full, ECONNREFUSED if no process listens.
    public static func connect(directory: Int32, name: String) throws(Errno) -> UnixSocket {
        UnixSocket(FileDescriptor(owning: try Errno.check(clinux_socket_connect(directory, name))))
    }

    /// Accepts a pending connection.
    ///
    /// - Throws: EAGAIN if there is none.
    public func accept() throws(Errno) -> UnixSocket {
        UnixSocket(FileDescriptor(owning: try Errno.check(clinux_socket_accept(number))))
    }

    /// The peer's credentials as the kernel recorded them (SO_PEERCRED).
    ///
    /// They are those of the process that connected, or that listened.
    public func peer() throws(Errno) -> (uid: UInt32, pid: Int32) {
        var (pid, uid, gid): (pid_t, uid_t, gid_t) = (0, 0, 0)
        _ = try Errno.check(clinux_socket_peer(number, &pid, &uid, &gid))
        return (uid, pid)
    }

    /// Sends all of `bytes`.
    ///
    /// - Parameter deadline: In nanoseconds of `Clock.monotonic`.
    /// - Throws: ETIMEDOUT, EPIPE.
    public func send(_ bytes: [UInt8], deadline: Int64) throws(Errno) {
        var sent = 0
        while sent < bytes.count {
            let result = bytes[sent...].withUnsafeBytes { clinux_socket_send(number, $0.baseAddress, $0.count) }
            if result == -Int(truncatingIfNeeded: EAGAIN) {
                try Poll.wait(number, writing: true, deadline: deadline)
            } else if result != -Int(truncatingIfNeeded: EINTR) {
                sent += try Errno.check(result)
            }
        }
    }

    /// Receives exactly `count` bytes.
    ///
    /// - Throws: ETIMEDOUT, or ECONNRESET if the peer closes before.
    public func receive(_ count: Int, deadline: Int64) throws(Errno) -> [UInt8] {
        // Grown as bytes arrive: a length that the peer only claims costs no memory.
        var bytes: [UInt8] = []
        var buffer = [UInt8](repeating: 0, count: min(count, 1 << 16))
        while bytes.count < count {
            let wanted = min(buffer.count, count - bytes.count)
            let result = buffer.withUnsafeMutableBytes { clinux_socket_receive(number, $0.baseAddress, wanted) }
            if result == -Int(truncatingIfNeeded: EAGAIN) {
                try Poll.wait(number, writing: false, deadline: deadline)
            } else if result != -Int(truncatingIfNeeded: EINTR) {
                let received = try Errno.check(result)
                if received == 0 { throw Errno(ECONNRESET) }
                bytes += buffer[..<received]
            }
        }
        return bytes
    }

    /// Sends as many bytes as the peer accepts without waiting. Returns the count, possibly 0.
    ///
    /// - Throws: EPIPE.
    public func sendSome(_ bytes: ArraySlice<UInt8>) throws(Errno) -> Int {
        while true {
            let result = bytes.withUnsafeBytes { clinux_socket_send(number, $0.baseAddress, $0.count) }
            if result == -Int(truncatingIfNeeded: EAGAIN) { return 0 }
            if result != -Int(truncatingIfNeeded: EINTR) { return try Errno.check(result) }
        }
    }

    /// Receives available bytes, at most `most`. Returns nil if there are none.
    ///
    /// - Throws: ECONNRESET if the peer is gone.
    public func receiveSome(_ most: Int) throws(Errno) -> [UInt8]? {
        var buffer = [UInt8](repeating: 0, count: most)
        while true {
            let result = buffer.withUnsafeMutableBytes { clinux_socket_receive(number, $0.baseAddress, $0.count) }
            if result == -Int(truncatingIfNeeded: EAGAIN) { return nil }
            if result == -Int(truncatingIfNeeded: EINTR) { continue }
            let received = try Errno.check(result)
            if received == 0 { throw Errno(ECONNRESET) }
            return Array(buffer[..<received])
        }
    }

    /// Shuts down receiving at once, also in a thread that waits. Pending output is still sent.
    public func shutdownReceiving() { _ = shutdown(number, Int32(truncatingIfNeeded: SHUT_RD)) }
}

/// The two ends of a connection.
public struct SocketPair: ~Copyable, Sendable {
    public let own: UnixSocket
    public let other: UnixSocket

    init(_ own: consuming UnixSocket, _ other: consuming UnixSocket) {
        self.own = own
        self.other = other
    }

    /// Keeps one end and closes the other, which a child has inherited.
    public consuming func closeOther() -> UnixSocket { own }
}

/// poll(2) with a deadline.
public enum Poll {
    /// Waits for `descriptor`. Throws ETIMEDOUT at `deadline` (nanoseconds of `Clock.monotonic`).
    public static func wait(_ descriptor: Int32, writing: Bool, deadline: Int64) throws(Errno) {
        while true {
            let left = deadline &- Clock.monotonic
            if left <= 0 { throw Errno(ETIMEDOUT) }
            let result = clinux_wait(descriptor, writing, -1, Int32(clamping: left / 1_000_000 &+ 1))
            if result > 0 { return }
            if result < 0 && result != -EINTR { throw Errno(Errno.number(of: result)) }
        }
    }

    /// Waits without limit until either is readable. True when it is `other`.
    public static func waitForEither(_ descriptor: Int32, _ other: Int32) throws(Errno) -> Bool {
        while true {
            let result = clinux_wait(descriptor, false, other, -1)
            if result > 0 { return result == 2 }
            if result != -EINTR { throw Errno(Errno.number(of: result)) }
        }
    }
}
