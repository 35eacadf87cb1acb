import Foundation
import Glibc

/// Members of an etcd cluster that belong to one test. Their data is in a directory of the test,
/// and their ports were free. They are killed when this value is destroyed.
public final class EtcdServers {
    public static let isInstalled = Machine.offers("etcd")
    public static let isMissing = Machine.needs("etcd")

    /// How clients connect to the members.
    public enum Security: Sendable {
        case plain
        /// TLS with certificates on both sides.
        case certificates
    }

    public struct Member {
        public let name: String
        public let client: Int
        public let peer: Int
        public let data: String
    }

    public let members: [Member]
    public let directory: String
    /// In memory if possible. etcd replies after its data is on disk, which takes seconds while
    /// other tests write to the disk.
    private let data: String
    private let security: Security
    private let options: [String]
    private var running: [String: Child] = [:]

    /// Starts the members and waits until each replies.
    public init(in directory: String, count: Int = 1, _ security: Security = .plain, options: [String] = []) throws {
        self.directory = directory + "/etcd"
        try FileManager.default.createDirectory(atPath: self.directory, withIntermediateDirectories: true)
        (self.security, self.options) = (security, options)
        let ports = try Self.freePorts(count * 2)
        var template = Array("/dev/shm/grantfs-test-etcd.XXXXXX".utf8CString)
        let place = mkdtemp(&template).map { String(cString: $0) } ?? self.directory
        data = place
        members = (0..<count).map { index in
            Member(name: "m\(index)", client: ports[2 * index], peer: ports[2 * index + 1], data: "\(place)/m\(index)")
        }
        if security == .certificates { try Certificates.make(in: self.directory) }
        for member in members { try start(member) }
        for member in members { try awaitAnswer(of: member) }
    }

    deinit {
        for child in running.values { child.kill() }
        if data != directory { try? FileManager.default.removeItem(atPath: data) }
    }

    private var scheme: String { security == .plain ? "http" : "https" }
    public var endpoints: [String] { members.map { "\(scheme)://127.0.0.1:\($0.client)" } }
    public var list: String { endpoints.joined(separator: ",") }
    public var authority: String { directory + "/ca.pem" }

    public func start(_ member: Member, more: [String] = []) throws {
        let client = "\(scheme)://127.0.0.1:\(member.client)"
        let peer = "http://127.0.0.1:\(member.peer)"
        var words = [
            "etcd", "--name", member.name, "--data-dir", member.data, "--listen-client-urls", client, "--advertise-client-urls", client,
            "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster",
            members.map { "\($0.name)=http://127.0.0.1:\($0.peer)" }.joined(separator: ","), "--logger", "zap", "--log-level", "warn",
            // A disk that other tests write to is slow at times.
            "--heartbeat-interval", "100", "--election-timeout", "1000",
        ]
        if security == .certificates {
            words += [
                "--cert-file", directory + "/server.pem", "--key-file", directory + "/server.key", "--trusted-ca-file", authority,
                "--client-cert-auth",
            ]
        }
        // The output goes to a file, because no thread of the tests reads a pipe of etcd.
        running[member.name] = try Child(
            ["sh", "-c", "log=$1; shift; exec \"$@\" >>\"$log\" 2>&1", "sh", member.data + ".log"] + words + options + more)
    }

    /// Kills a member with SIGKILL, as a crash would.
    public func kill(_ member: Member) {
        running[member.name]?.kill()
        running[member.name] = nil
    }

    /// Stops a member, which then replies to no client, or continues it.
    public func suspend(_ member: Member, _ isStopped: Bool = true) {
        if let child = running[member.name] { _ = Glibc.kill(child.pid, isStopped ? SIGSTOP : SIGCONT) }
    }

    public func awaitAnswer(of member: Member) throws {
        let deadline = Machine.deadline(seconds: 60)
        while true {
            if security == .plain {
                if isHealthy(member) { return }
            } else if try etcdctl("endpoint", "health", endpoint: member).status == 0 {
                return
            }
            guard Machine.milliseconds < deadline else {
                throw TestFailure("etcd does not answer: " + ((try? String(contentsOfFile: member.data + ".log", encoding: .utf8)) ?? ""))
            }
            pause(milliseconds: 20)
        }
    }

    /// Whether a member reports that it serves requests that need a leader. Asking over HTTP takes
    /// less processor time than one run of the client's program for each question.
    private func isHealthy(_ member: Member) -> Bool {
        let socket = Glibc.socket(AF_INET, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
        defer { close(socket) }
        var limit = timeval(tv_sec: 5, tv_usec: 0)
        setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &limit, socklen_t(MemoryLayout<timeval>.size))
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_addr.s_addr = UInt32(0x7F00_0001).bigEndian
        address.sin_port = UInt16(member.client).bigEndian
        let isConnected = withUnsafePointer(to: &address) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { pointer in
                connect(socket, pointer, socklen_t(MemoryLayout<sockaddr_in>.size)) == 0
            }
        }
        let request = Array("GET /health HTTP/1.0\r\n\r\n".utf8)
        guard isConnected, Glibc.send(socket, request, request.count, Int32(MSG_NOSIGNAL)) == request.count else { return false }
        var (answer, buffer) = ([UInt8](), [UInt8](repeating: 0, count: 4096))
        while case let count = recv(socket, &buffer, buffer.count, 0), count > 0 { answer += buffer[..<count] }
        return String(decoding: answer, as: UTF8.self).contains(#""health":"true""#)
    }

    /// Runs Debian's client, as the etcd user `user` if it is given.
    @discardableResult
    public func etcdctl(_ words: String..., endpoint: Member? = nil, user: String? = nil, input: String? = nil) throws -> Output {
        var command = ["etcdctl", "--endpoints", endpoint.map { "\(scheme)://127.0.0.1:\($0.client)" } ?? list]
        if security == .certificates {
            command += ["--cacert", authority, "--cert", directory + "/client.pem", "--key", directory + "/client.key"]
        }
        if let user { command += ["--user", user] }
        return try Command.run(command + words, environment: ["ETCDCTL_API": "3"], input: input, within: 30)
    }

    /// Ports of this machine on which no process listens.
    static func freePorts(_ count: Int) throws -> [Int] {
        var (sockets, ports): ([Int32], [Int]) = ([], [])
        defer { sockets.forEach { close($0) } }
        for _ in 0..<count {
            let (socket, port) = try Self.listening(backlog: nil)
            sockets.append(socket)
            ports.append(port)
        }
        return ports
    }

    /// A socket with its own port. With a backlog the kernel accepts connections, but no process
    /// replies to them.
    public static func listening(backlog: Int32?) throws -> (socket: Int32, port: Int) {
        let socket = Glibc.socket(AF_INET, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_addr.s_addr = UInt32(0x7F00_0001).bigEndian
        var length = socklen_t(MemoryLayout<sockaddr_in>.size)
        let isBound = withUnsafeMutablePointer(to: &address) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { pointer in
                bind(socket, pointer, length) == 0 && getsockname(socket, pointer, &length) == 0
            }
        }
        guard socket >= 0, isBound else { throw TestFailure("no free port: \(String(cString: strerror(errno)))") }
        if let backlog { listen(socket, backlog) }
        return (socket, Int(UInt16(bigEndian: address.sin_port)))
    }
}

/// A certificate authority (`ca.pem`) and the certificates that it signed, each a `.pem` and a `.key`.
///
/// - `server`
/// - `client`, which has no common name
/// - `named`, a client's certificate with a common name
/// - `late-server` and `late-client`, which have expired
///
/// `other.pem` is the certificate of another authority.
enum Certificates {
    static func make(in directory: String) throws {
        try Command.shell(
            """
            cd "$1"
            for name in ca other; do
                openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj "/CN=$name" -keyout $name.key -out $name.pem 2>/dev/null
            done
            for name in server client named late-server late-client; do
                openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj "$(case $name in *client) echo /O=fleet ;; *) echo /CN=$name ;; esac)" -keyout $name.key -out $name.csr 2>/dev/null
                printf 'subjectAltName=IP:127.0.0.1\\nextendedKeyUsage=serverAuth,clientAuth\\n' >$name.ext
                openssl x509 -req -in $name.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days $(case $name in late-*) echo -1 ;; *) echo 2 ;; esac) -extfile $name.ext -out $name.pem 2>/dev/null
            done
            """, directory
        ).orThrow()
    }
}
