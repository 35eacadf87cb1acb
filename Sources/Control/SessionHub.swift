import Glibc
import LinuxFS

/// Serves all sessions of a mount with one thread, so that a thousand that wait cost a thousand descriptors and nothing else.
///
/// Locking: `arrivals` for a moment.
final class SessionHub: Sendable {
    private let handler: any SessionHandler
    private let wakeUp: PipePair
    private let arrivals = Lock(Arrivals())

    private struct Arrivals {
        var last: UInt64 = 0
        var new: [ControlSession] = []
        var isStopped = false
        /// Sessions that have not ended.
        var count = 0
    }

    var isEmpty: Bool { arrivals.withLock { $0.count == 0 } }

    /// A message that a client sends is no longer than this.
    private static let largest = 1 << 20
    private static let mostSessions = 16_384

    init(_ handler: any SessionHandler) throws(Errno) {
        self.handler = handler
        wakeUp = try PipePair()
        // Neither end may ever wait: whoever wakes needs no second byte while there is one.
        for end in [wakeUp.reading.number, wakeUp.writing.number] { _ = fcntl(end, F_SETFL, O_NONBLOCK) }
        try WorkerThread.start("control-hub") { [self] in run() }.detach()
    }

    /// Takes a connection over. False when there are too many, or the server has ended.
    func adopt(_ connection: ControlConnection, peer: Peer, greeting: ControlReply) -> Bool {
        let message = greeting.encoded
        guard (try? connection.socket.sendSome((Frame.header(message.count) + message)[...])) == message.count + 4 else { return false }
        let isTaken = arrivals.withLock { arrivals -> Bool in
            if arrivals.isStopped { return false }
            arrivals.last += 1
            arrivals.count += 1
            arrivals.new.append(
                ControlSession(number: arrivals.last, peer: peer, connection: connection) { [weak self] in self?.wake() })
            return true
        }
        wake()
        return isTaken
    }

    func stop() {
        arrivals.withLock { $0.isStopped = true }
        wake()
    }

    private func wake() { _ = write(wakeUp.writing.number, [0], 1) }

    // MARK: the thread

    private struct Client {
        let session: ControlSession
        var incoming: [UInt8] = []
    }

    private func run() {
        var clients: [Client] = []
        var set = PollSet()
        while true {
            let (new, isStopped) = arrivals.withLock { arrivals in
                defer { arrivals.new = [] }
                return (arrivals.new, arrivals.isStopped)
            }
            let taken = new.prefix(max(0, Self.mostSessions - clients.count))
            clients += taken.map { Client(session: $0) }
            arrivals.withLock { $0.count -= new.count - taken.count }
            if isStopped { break }
            set.removeAll()
            set.add(wakeUp.reading.number)
            for client in clients { set.add(client.session.connection.socket.number, writing: client.session.hasMore()) }
            guard (try? set.wait(until: nil)) != nil else { break }
            if set.isReadable(0) { drainWakeUps() }
            var gone: [Int] = []
            for place in clients.indices {
                if set.isWritable(place + 1) { clients[place].session.sendMore() }
                let isAlive = !set.isReadable(place + 1) || receive(&clients[place])
                if !isAlive || clients[place].session.isOver { gone.append(place) }
            }
            for place in gone.reversed() {
                let client = clients.remove(at: place)
                client.session.end()
                handler.ended(client.session)
                arrivals.withLock { $0.count -= 1 }
            }
        }
        for client in clients { handler.ended(client.session) }
    }

    private func drainWakeUps() {
        var bytes = [UInt8](repeating: 0, count: 256)
        while read(wakeUp.reading.number, &bytes, bytes.count) == bytes.count {}
    }

    /// Takes what has come. False when the client is gone or sends what makes no sense.
    private func receive(_ client: inout Client) -> Bool {
        do throws(Errno) {
            guard let bytes = try client.session.connection.socket.receiveSome(1 << 16) else { return true }
            client.incoming += bytes
        } catch {
            return false
        }
        var taken = 0
        defer { client.incoming.removeFirst(taken) }
        while client.incoming.count - taken >= 4 {
            let length = client.incoming[taken..<taken + 4].reduce(0) { $0 << 8 | Int(truncatingIfNeeded: $1) }
            if length > Self.largest { return false }
            guard client.incoming.count - taken >= 4 + length else { break }
            guard let request = try? SessionRequest.decode(Array(client.incoming[taken + 4..<taken + 4 + length])) else { return false }
            taken += 4 + length
            handler.received(request, from: client.session)
        }
        return true
    }
}
