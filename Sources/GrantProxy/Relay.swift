import Glibc
import GrantSystem

/// Copies bytes both ways between two non-blocking sockets, until both have ended or one is gone.
struct Relay {
    private struct Direction {
        let source: Int32
        let target: Int32
        var pending: ArraySlice<UInt8>
        /// How many bytes may still be read, or nil without a limit.
        var remaining: Int?
        var hasReachedEOF = false
        var isShutDown = false

        var mayRead: Bool { !hasReachedEOF && pending.isEmpty && remaining != 0 }

        /// Reads and writes until it would block. Returns false when one end is gone.
        mutating func move(_ buffer: inout [UInt8]) -> Bool {
            if mayRead {
                let count = read(source, &buffer, min(buffer.count, remaining ?? buffer.count))
                if count == 0 { hasReachedEOF = true }
                if count < 0, errno != EAGAIN, errno != EINTR { return false }
                if count > 0 {
                    pending = buffer[..<count]
                    if let remaining { self.remaining = remaining - count }
                }
            }
            while !pending.isEmpty {
                let count = pending.withUnsafeBytes { send(target, $0.baseAddress, $0.count, Int32(truncatingIfNeeded: MSG_NOSIGNAL)) }
                if count < 0, errno == EINTR { continue }
                if count < 0, errno == EAGAIN { break }
                guard count > 0 else { return false }
                pending = pending.dropFirst(count)
            }
            if hasReachedEOF, pending.isEmpty, !isShutDown {
                shutdown(target, Int32(SHUT_WR))
                isShutDown = true
            }
            return true
        }
    }

    private var toServer: Direction
    private var toClient: Direction
    private var buffer = [UInt8](repeating: 0, count: 64 << 10)

    /// `first` are bytes already read from the client, which are sent first. `remaining` is how
    /// many more to take from the client, or nil for all.
    init(client: Int32, server: Int32, first: ArraySlice<UInt8>, remaining: Int?) {
        toServer = Direction(source: client, target: server, pending: first, remaining: remaining)
        toClient = Direction(source: server, target: client, pending: [])
    }

    mutating func run() {
        while !(toClient.hasReachedEOF && toClient.pending.isEmpty) {
            let input = Int16(truncatingIfNeeded: POLLIN)
            let output = Int16(truncatingIfNeeded: POLLOUT)
            var sockets = [
                pollfd(fd: toServer.source, events: (toServer.mayRead ? input : 0) | (toClient.pending.isEmpty ? 0 : output), revents: 0),
                pollfd(fd: toClient.source, events: (toClient.mayRead ? input : 0) | (toServer.pending.isEmpty ? 0 : output), revents: 0),
            ]
            // A server that has closed keeps polling ready, so it is not polled until its last
            // bytes are sent on.
            if sockets[1].events == 0 { sockets[1].fd = -1 }
            if poll(&sockets, 2, -1) < 0 {
                if errno == EINTR { continue }
                return
            }
            let broken = Int16(truncatingIfNeeded: POLLERR | POLLNVAL)
            if sockets.contains(where: { $0.revents & broken != 0 }) { return }
            // The client has closed both directions and reads no more answers.
            if sockets[0].revents & Int16(truncatingIfNeeded: POLLHUP) != 0, !toServer.mayRead { return }
            guard toServer.move(&buffer), toClient.move(&buffer) else { return }
        }
    }
}
