import Glibc
import GrantSystem

/// Hands bytes on between two sockets that do not block, until both have ended or one is gone.
struct Relay {
    private struct Way {
        let source: Int32
        let target: Int32
        var waiting: ArraySlice<UInt8>
        /// How many more may be read; nil: as many as come.
        var left: Int?
        var hasEnded = false
        var isShut = false

        var mayRead: Bool { !hasEnded && waiting.isEmpty && left != 0 }

        /// Whatever can be done now. False when one end is gone.
        mutating func move(_ buffer: inout [UInt8]) -> Bool {
            if mayRead {
                let count = read(source, &buffer, min(buffer.count, left ?? buffer.count))
                if count == 0 { hasEnded = true }
                if count < 0, errno != EAGAIN, errno != EINTR { return false }
                if count > 0 {
                    waiting = buffer[..<count]
                    if let left { self.left = left - count }
                }
            }
            while !waiting.isEmpty {
                let count = waiting.withUnsafeBytes { send(target, $0.baseAddress, $0.count, Int32(truncatingIfNeeded: MSG_NOSIGNAL)) }
                if count < 0, errno == EINTR { continue }
                if count < 0, errno == EAGAIN { break }
                guard count > 0 else { return false }
                waiting = waiting.dropFirst(count)
            }
            if hasEnded, waiting.isEmpty, !isShut {
                shutdown(target, Int32(SHUT_WR))
                isShut = true
            }
            return true
        }
    }

    private var there: Way
    private var back: Way
    private var buffer = [UInt8](repeating: 0, count: 64 << 10)

    /// `first`: what has been read of the client and is to be sent. `left`: of what comes from the client after that; nil for all.
    init(client: Int32, server: Int32, first: ArraySlice<UInt8>, left: Int?) {
        there = Way(source: client, target: server, waiting: first, left: left)
        back = Way(source: server, target: client, waiting: [])
    }

    mutating func run() {
        while !(back.hasEnded && back.waiting.isEmpty) {
            let input = Int16(truncatingIfNeeded: POLLIN)
            let output = Int16(truncatingIfNeeded: POLLOUT)
            var sockets = [
                pollfd(fd: there.source, events: (there.mayRead ? input : 0) | (back.waiting.isEmpty ? 0 : output), revents: 0),
                pollfd(fd: back.source, events: (back.mayRead ? input : 0) | (there.waiting.isEmpty ? 0 : output), revents: 0),
            ]
            // A server that has gone says so until its last bytes are handed on.
            if sockets[1].events == 0 { sockets[1].fd = -1 }
            if poll(&sockets, 2, -1) < 0 {
                if errno == EINTR { continue }
                return
            }
            let broken = Int16(truncatingIfNeeded: POLLERR | POLLNVAL)
            if sockets.contains(where: { $0.revents & broken != 0 }) { return }
            // The client has gone, both of its ways: nobody reads what comes.
            if sockets[0].revents & Int16(truncatingIfNeeded: POLLHUP) != 0, !there.mayRead { return }
            guard there.move(&buffer), back.move(&buffer) else { return }
        }
    }
}
