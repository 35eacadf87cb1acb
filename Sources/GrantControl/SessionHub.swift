import Glibc
import GrantSystem

/// Serves all sessions of a mount with one thread.
///
/// So a thousand waiting sessions cost a thousand descriptors and nothing else.
///
/// Locking: `arrivals` for a moment.
final class SessionHub: Sendable {
    private let handler: any SessionHandler
    private let wakening: Wakening
    private let arrivals: Lock<Arrivals>

    private struct Arrivals {
        var last: UInt64 = 0
        var new: [ControlSession] = []
        var isStopped = false
        /// Sessions that have not ended.
        var count = 0
        /// No message is taken from a client: see `pause`.
        var isPaused: Bool
        /// While the thread rests: all sessions, with their incomplete messages.
        var resting: [Client]?
        /// Sessions of another daemon.
        var handedOver: [Client] = []
    }

    var isEmpty: Bool { arrivals.withLock { $0.count == 0 } }

    /// The limit of a client's message in bytes.
    private static let largest = 1 << 20
    private static let mostSessions = 16_384

    /// `isPaused`: it serves no session before `resume`.
    init(_ handler: any SessionHandler, isPaused: Bool = false) throws(Errno) {
        self.handler = handler
        arrivals = Lock(Arrivals(isPaused: isPaused))
        wakening = try Wakening()
        try WorkerThread.start("control-hub") { [self] in run() }.detach()
    }

    /// Takes a connection over. Returns false if there are too many, or the server has ended.
    func adopt(_ connection: ControlConnection, peer: Peer, greeting: ControlReply) -> Bool {
        let message = Frame.framed(greeting.encoded)
        guard (try? connection.socket.sendSome(message[...])) == message.count else { return false }
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

    private func wake() { wakening.wake() }

    // MARK: pausing

    /// Stops receiving and sending on all sessions, and waits until that is so.
    ///
    /// Messages of clients wait in their sockets, and messages to clients wait until `resume`.
    /// Returns false if that is not done by `deadline` (`Clock.monotonic`). There is then no pause.
    func pause(until deadline: Int64) -> Bool {
        arrivals.withLock { $0.isPaused = true }
        wake()
        while arrivals.withLock({ $0.resting == nil }) {
            if Clock.monotonic > deadline {
                resume()
                return false
            }
            usleep(500)
        }
        return true
    }

    func resume() {
        let resting = arrivals.withLock { arrivals in
            arrivals.isPaused = false
            return arrivals.resting ?? []
        }
        for client in resting { client.session.endHold() }
        wake()
    }

    /// Writes all sessions, which send nothing from now on. During a pause.
    func handOver(to state: inout HandoverWriter) {
        let (clients, last) = arrivals.withLock { ($0.resting ?? [], $0.last) }
        state.put(last)
        state.put(UInt64(truncatingIfNeeded: clients.count))
        for client in clients {
            state.put(client.session.number)
            state.put(descriptor: client.session.connection.socket.number)
            state.put(bytes: client.incoming)
            state.put(bytes: client.session.hold())
        }
    }

    /// Restores the sessions of another daemon, by their numbers. Call it before `resume`.
    func takeOver(from state: inout HandoverReader) throws(Errno) -> [UInt64: ControlSession] {
        let last: UInt64 = try state.take()
        var clients: [Client] = []
        for _ in 0..<(try state.takeCount(ofAtLeast: 28)) {
            let (number, descriptor): (UInt64, Int32) = (try state.take(), try state.takeDescriptor())
            guard descriptor >= 0, number <= last else { throw Errno(EBADMSG) }
            let connection = ControlConnection(UnixSocket(connected: FileDescriptor(owning: descriptor)))
            let (uid, pid) = try connection.socket.peer()
            let incoming = try state.takeBytes()
            let session = ControlSession(
                number: number, peer: Peer(uid: uid, pid: pid), connection: connection, outgoing: try state.takeBytes()
            ) { [weak self] in self?.wake() }
            clients.append(Client(session: session, incoming: incoming))
        }
        let taken = clients
        arrivals.withLock { arrivals in
            arrivals.last = max(arrivals.last, last)
            arrivals.count += taken.count
            arrivals.handedOver = taken
        }
        return Dictionary(taken.map { ($0.session.number, $0.session) }, uniquingKeysWith: { first, _ in first })
    }

    /// Continues the connection of a dead daemon.
    ///
    /// Message parts that the daemon had received, or not yet sent, are lost. Call it before
    /// `resume`.
    func restore(_ descriptor: consuming FileDescriptor) throws(Errno) -> ControlSession {
        let connection = ControlConnection(UnixSocket(connected: descriptor))
        let (uid, pid) = try connection.socket.peer()
        return arrivals.withLock { arrivals in
            arrivals.last += 1
            arrivals.count += 1
            let session = ControlSession(number: arrivals.last, peer: Peer(uid: uid, pid: pid), connection: connection) { [weak self] in
                self?.wake()
            }
            arrivals.handedOver.append(Client(session: session))
            return session
        }
    }

    /// Waits during a pause, on the hub's thread.
    private func rest(_ clients: [Client]) {
        // New sessions are added first.
        let isResting = arrivals.withLock { arrivals -> Bool in
            guard arrivals.isPaused, !arrivals.isStopped, arrivals.new.isEmpty, arrivals.handedOver.isEmpty else { return false }
            arrivals.resting = clients
            return true
        }
        guard isResting else { return }
        while arrivals.withLock({ $0.isPaused && !$0.isStopped }) { usleep(500) }
        arrivals.withLock { $0.resting = nil }
    }

    // MARK: the thread

    struct Client {
        let session: ControlSession
        var incoming: [UInt8] = []
    }

    private func run() {
        var clients: [Client] = []
        var set = PollSet()
        while true {
            rest(clients)
            let (new, isStopped) = arrivals.withLock { arrivals in
                clients += arrivals.handedOver
                defer { (arrivals.new, arrivals.handedOver) = ([], []) }
                return (arrivals.new, arrivals.isStopped)
            }
            let taken = new.prefix(max(0, Self.mostSessions - clients.count))
            clients += taken.map { Client(session: $0) }
            arrivals.withLock { $0.count -= new.count - taken.count }
            if isStopped { break }
            set.removeAll()
            set.add(wakening.descriptor)
            for client in clients { set.add(client.session.connection.socket.number, writing: client.session.hasMore()) }
            guard (try? set.wait(until: nil)) != nil else { break }
            if set.isReadable(0) { wakening.drain() }
            var gone: [Int] = []
            // During a pause messages stay in the sockets.
            if arrivals.withLock({ $0.isPaused }) { continue }
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

    /// Receives messages. Returns false if the client is gone or sends malformed bytes.
    private func receive(_ client: inout Client) -> Bool {
        do throws(Errno) {
            guard let bytes = try client.session.connection.socket.receiveSome(1 << 16) else { return true }
            client.incoming += bytes
        } catch {
            return false
        }
        var taken = 0
        defer { client.incoming.removeFirst(taken) }
        do {
            while let message = try Frame.first(in: client.incoming[taken...], most: Self.largest) {
                let request = try SessionRequest.decode(Array(message))
                taken = message.endIndex
                handler.received(request, from: client.session)
            }
        } catch {
            return false
        }
        return true
    }
}
