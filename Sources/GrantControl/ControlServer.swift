import Glibc
import GrantModel
import GrantSystem

/// Answers commands of one mount, on a socket for only this user and root.
///
/// Locking: `connections` is held for table changes alone, never while a request is handled.
public final class ControlServer: Sendable {
    /// Nanoseconds for a client to send its request, or to take its reply.
    private static let patience: Int64 = 10_000_000_000
    /// The limit of connections, more than any use has.
    ///
    /// At the limit the oldest connection without a whole request is ended to make room. If there
    /// is none, a new client waits in the socket's queue.
    private static let mostConnections = 64

    /// Threads made before any client, in case none can be made later.
    ///
    /// A command that withdraws a grant must be served even if threads have run out.
    private static let spareThreads = 2

    private struct State {
        var connections: [Int32: ControlConnection] = [:]
        /// Connections without a whole request, in order of arrival.
        var silent: [Int32] = []
        var isStopped = false
        /// No client is accepted: see `pause`.
        var isPaused = false
        /// For the spare threads.
        var waiting: [ControlConnection] = []
    }

    private let directory: FileDescriptor
    private let name: String
    private let listening: UnixSocket
    private let wakeUp: PipePair
    private let handler: any ControlHandler
    /// It is nil if this server has no sessions.
    private let hub: SessionHub?
    private let state = Lock(State())
    private let accepting = Lock<WorkerThread?>(nil)
    private let spare = Semaphore()

    /// Listens at `name` in `directory`, and handles requests until `stop`.
    ///
    /// The directory is made (0700) if it is missing. A dead daemon's socket is replaced. Requests
    /// are handled on threads of the server's own, with all signals blocked.
    ///
    /// - Parameters:
    ///   - sessions: Serves the connections on which messages go both ways.
    ///   - listener: A listening socket that another daemon handed over. `begin` then accepts the
    ///     first client.
    public init(
        directory path: String, name: String, handler: any ControlHandler, sessions: (any SessionHandler)? = nil,
        listener: consuming FileDescriptor? = nil
    ) throws(GrantError) {
        let isHandedOver = listener != nil
        do throws(Errno) {
            if mkdir(path, 0o700) != 0, errno != EEXIST { throw Errno(errno) }
            directory = try FileDescriptor.open(path.utf8, OpenFlags.path | O_DIRECTORY | O_NOFOLLOW)
            if let listener {
                listening = UnixSocket(connected: listener)
            } else {
                if unlinkat(directory.number, name, 0) != 0, errno != ENOENT { throw Errno(errno) }
                listening = try UnixSocket.listen(directory: directory.number, name: name)
            }
            wakeUp = try PipePair()
            if let sessions { hub = try SessionHub(sessions, isPaused: isHandedOver) } else { hub = nil }
        } catch {
            throw GrantError(.system, "cannot listen for commands at \(path)/\(name)", cause: error.description)
        }
        self.name = name
        self.handler = handler
        state.withLock { $0.isPaused = isHandedOver }
        do throws(Errno) {
            for _ in 0..<Self.spareThreads { try WorkerThread.start("control-spare") { [self] in answerWaiting() }.detach() }
            let thread = try WorkerThread.start("control") { [self] in acceptConnections() }
            accepting.withLock { $0 = thread }
        } catch {
            throw GrantError(.system, "cannot start a thread", cause: error.description)
        }
    }

    /// Takes no further requests and removes the socket.
    ///
    /// Replies that are being sent are completed. Does not wait for a handler that blocks. A
    /// handler may call it, and it may be called more than once.
    public func stop() {
        let thread = accepting.withLock { (thread) -> WorkerThread? in
            defer { thread = nil }
            return thread
        }
        guard let thread else { return }
        _ = unlinkat(directory.number, name, 0)
        state.withLock { state in
            state.isStopped = true
            for connection in state.connections.values { connection.socket.shutdownReceiving() }
        }
        for _ in 0..<Self.spareThreads { spare.post() }
        _ = write(wakeUp.writing.number, [0], 1)
        hub?.stop()
        thread.join()
    }

    private func acceptConnections() {
        while true {
            guard let isOver = try? Poll.waitForEither(listening.number, wakeUp.reading.number), !isOver else { return }
            let isFull = state.withLock { state in
                guard state.connections.count >= ControlServer.mostConnections else { return false }
                if let longest = state.silent.first { state.connections[longest]?.socket.shutdownReceiving() }
                return true
            }
            if isFull || state.withLock({ $0.isPaused }) {
                usleep(10_000)
                continue
            }
            do throws(Errno) {
                try serve(try accept())
            } catch {
                // Descriptors or threads have run out, or the client is gone: the queue is tried
                // again.
                if error != Errno(EAGAIN) { usleep(10_000) }
            }
        }
    }

    /// The next connection, added to the list. EAGAIN if there is none, or during a pause.
    private func accept() throws(Errno) -> ControlConnection {
        try state.withLock { (state) throws(Errno) in
            if state.isStopped || state.isPaused { throw Errno(EAGAIN) }
            let connection = ControlConnection(try listening.accept())
            state.connections[connection.socket.number] = connection
            state.silent.append(connection.socket.number)
            return connection
        }
    }

    private func serve(_ connection: ControlConnection) throws(Errno) {
        do throws(Errno) {
            try WorkerThread.start("control-client") { [self] in finish(connection) }.detach()
        } catch {
            state.withLock { $0.waiting.append(connection) }
            spare.post()
        }
    }

    /// Serves, on a spare thread, clients for which no thread could be made.
    private func answerWaiting() {
        while true {
            spare.wait()
            let (next, isStopped) = state.withLock { ($0.waiting.isEmpty ? nil : $0.waiting.removeFirst(), $0.isStopped) }
            if let next { finish(next) } else if isStopped { return }
        }
    }

    private func finish(_ connection: ControlConnection) {
        answer(connection)
        state.withLock { state in
            state.connections[connection.socket.number] = nil
            state.silent.removeAll { $0 == connection.socket.number }
        }
    }

    private func answer(_ connection: ControlConnection) {
        guard let (uid, pid) = try? connection.socket.peer(), uid == geteuid() || uid == 0 else { return }
        guard let message = try? Frame.receive(over: connection.socket, deadline: Clock.monotonic + ControlServer.patience) else { return }
        state.withLock { state in state.silent.removeAll { $0 == connection.socket.number } }
        let reply: ControlReply
        do {
            let request = try ControlRequest.decode(message)
            let peer = Peer(uid: uid, pid: pid)
            if request == .handOver { return handler.handOver(over: connection.socket, of: self) }
            if request == .session, hub?.adopt(connection, peer: peer, greeting: .done) == true { return }
            reply = handler.handle(request, peer: peer)
        } catch {
            reply = .failed(error == .otherVersion ? "the daemon is of another version than the command" : "the request makes no sense")
        }
        try? Frame.send(reply.encoded, over: connection.socket, deadline: Clock.monotonic + ControlServer.patience)
    }
}

// MARK: handing over

extension ControlServer {
    /// The socket at which clients arrive, for the next daemon. The server keeps ownership.
    public var listener: Int32 { listening.number }

    /// Stops accepting clients and sending on sessions, and waits for all other clients.
    ///
    /// The caller's own connection may stay. Clients that arrive meanwhile wait in the socket's
    /// queue. Returns false if a client has stayed until `deadline` (`Clock.monotonic`). There is
    /// then no pause.
    public func pause(until deadline: Int64) -> Bool {
        state.withLock { $0.isPaused = true }
        while state.withLock({ $0.connections.count }) > 1 {
            if Clock.monotonic > deadline {
                begin()
                return false
            }
            usleep(1_000)
        }
        guard hub?.pause(until: deadline) != false else {
            begin()
            return false
        }
        return true
    }

    /// Writes all sessions. During a pause.
    public func handOverSessions(to state: inout HandoverWriter) { hub?.handOver(to: &state) }

    /// Restores the sessions that another daemon has written, by their numbers.
    ///
    /// Call it before `begin`, in a server with a handed over listener.
    public func takeOverSessions(from state: inout HandoverReader) throws(Errno) -> [UInt64: ControlSession] {
        try hub?.takeOver(from: &state) ?? [:]
    }

    /// Continues the session on a connection of a dead daemon. Call it before `begin`.
    public func restoreSession(_ descriptor: consuming FileDescriptor) throws(Errno) -> ControlSession {
        guard let hub else { throw Errno(EINVAL) }
        return try hub.restore(descriptor)
    }

    /// Accepts clients: ends a pause.
    public func begin() {
        hub?.resume()
        state.withLock { $0.isPaused = false }
    }
}
