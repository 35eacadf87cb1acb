import Glibc
import GrantModel
import GrantSystem

/// Sends requests to the daemon of one mount.
public enum ControlClient {
    /// Why there is no valid reply from a daemon.
    public enum Failure: Error, Sendable, Equatable {
        /// No process listens there.
        case absent
        /// The daemon did not answer within the time.
        case timedOut
        /// The daemon closed the connection, or ended.
        case hungUp
        /// The listening process belongs to another user.
        case stranger(uid: UInt32)
        /// The reply is malformed.
        case nonsense
        case system(Errno)

        public var description: String {
            switch self {
            case .absent: "its daemon does not listen"
            case .timedOut: "no answer within the time"
            case .hungUp: "its daemon hung up"
            case .stranger(let uid): "the socket belongs to user \(uid)"
            case .nonsense: "its daemon answered with something else (of another version, perhaps)"
            case .system(let error): error.description
            }
        }
    }

    /// Sends `request` to `socket` in `directory` and waits for the reply.
    ///
    /// - Parameter seconds: The longest wait.
    public static func send(
        _ request: ControlRequest, to socket: String, in directory: String, timeout seconds: Double
    ) throws(GrantError) -> ControlReply {
        do throws(Failure) {
            return try ask(request, socket: socket, directory: directory, deadline: Clock.deadline(seconds: seconds))
        } catch {
            let code: GrantError.Code = error == .timedOut ? .unconfirmed : .system
            throw GrantError(code, "the daemon at \(directory)/\(socket) cannot be asked", cause: error.description)
        }
    }

    /// Does the same with a deadline, and with failures that a program can distinguish.
    ///
    /// - Parameter deadline: In nanoseconds of `Clock.monotonic`.
    public static func ask(
        _ request: ControlRequest, socket name: String, directory path: String, deadline: Int64
    ) throws(Failure) -> ControlReply {
        let socket = try open(name, in: path, deadline: deadline)
        return try ask(request, over: socket, deadline: deadline)
    }

    static func ask(
        _ request: ControlRequest, over socket: borrowing UnixSocket, deadline: Int64
    ) throws(Failure) -> ControlReply {
        do {
            try Frame.send(request.encoded, over: socket, deadline: deadline)
            return try ControlReply.decode(try Frame.receive(over: socket, deadline: deadline))
        } catch let error as Errno {
            throw Failure(error)
        } catch {
            throw .nonsense
        }
    }

    /// Opens a connection to a server that may answer there.
    ///
    /// The server must be this user's, root's, or the owner's of the directory.
    public static func open(_ name: String, in path: String, deadline: Int64) throws(Failure) -> UnixSocket {
        do {
            let directory = try FileDescriptor.open(path.utf8, OpenFlags.path | O_DIRECTORY)
            let owner = try directory.status().st.st_uid
            let socket = try connect(directory: directory.number, name: name, deadline: deadline)
            let server = try socket.peer().uid
            guard server == geteuid() || server == 0 || server == owner else { throw Failure.stranger(uid: server) }
            return socket
        } catch let error as Failure {
            throw error
        } catch let error as Errno {
            throw Failure(error)
        } catch {
            throw .nonsense
        }
    }

    private static func connect(directory: Int32, name: String, deadline: Int64) throws(Errno) -> UnixSocket {
        while true {
            do throws(Errno) {
                return try UnixSocket.connect(directory: directory, name: name)
            } catch {
                // The queue of a busy or stopped server is full. No event reports room in it, so it
                // is tried again.
                guard error == Errno(EAGAIN) || error == Errno(EINTR) else { throw error }
                if Clock.monotonic >= deadline { throw Errno(ETIMEDOUT) }
                usleep(5_000)
            }
        }
    }
}

extension ControlClient.Failure {
    init(_ error: Errno) {
        switch error.rawValue {
        case ETIMEDOUT: self = .timedOut
        case ENOENT, ECONNREFUSED: self = .absent
        case ECONNRESET, EPIPE: self = .hungUp
        case EMSGSIZE: self = .nonsense
        default: self = .system(error)
        }
    }
}

extension Clock {
    /// `seconds` from now, in nanoseconds of `monotonic`.
    public static func deadline(seconds: Double) -> Int64 {
        monotonic &+ Int64(saturating: min(max(seconds, 0), 1e9) * 1e9)
    }
}
