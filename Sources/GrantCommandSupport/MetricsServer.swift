import Glibc
import GrantAdministration
import GrantCommandLine
import GrantModel
import GrantSystem

/// Serves metrics on a Unix socket: HTTP/1.1, one response a connection, one connection at a time.
package enum MetricsServer {
    /// How long a client may take to send its request, or to read the response: nanoseconds.
    private static let timeout: Int64 = 5_000_000_000
    private static let maxRequest = 16_384

    /// Prints the text, or serves it at the socket of `--listen`.
    package static func run(_ arguments: ParsedArguments, _ read: @Sendable () throws(GrantError) -> String) throws(GrantError) -> Int32 {
        guard let listen = arguments.bytes("listen") else {
            try Terminal.print(try read(), terminator: "")
            return 0
        }
        guard listen.starts(with: Array("unix:".utf8)), listen.count > 5 else {
            throw GrantError(
                .usage, "invalid address “\(String(decoding: listen, as: UTF8.self))” for --listen",
                advice: "--listen unix:/run/grantfs.sock")
        }
        return try run(path: CanonicalPath.absolute(Array(listen.dropFirst(5))), read)
    }

    /// Serves until SIGTERM or SIGINT, and removes the socket. Throws `.system` if the path is
    /// taken.
    private static func run(path: [UInt8], _ text: @Sendable () throws(GrantError) -> String) throws(GrantError) -> Int32 {
        signal(SIGPIPE, SIG_IGN)
        do throws(Errno) {
            var name = try SocketName(path)
            let socket = try name.listen()
            let stop = try PipePair()
            let end = EndSignal(stop.writing.number)
            defer {
                end.disarm()
                name.remove()
            }
            while true {
                if try Poll.waitForEither(socket.number, stop.reading.number) { return 0 }
                guard let connection = try? socket.accept() else { continue }
                // A client that hangs up or stalls gets nothing, and the next one has its turn.
                try? answer(connection, text)
            }
        } catch {
            throw GrantError(.system, "nothing can be served at \(String(decoding: path, as: UTF8.self))", cause: error.description)
        }
    }

    private static func answer(_ connection: borrowing UnixSocket, _ text: () throws(GrantError) -> String) throws(Errno) {
        let deadline = Clock.monotonic + timeout
        var request: [UInt8] = []
        while !request.suffix(4).elementsEqual("\r\n\r\n".utf8), !request.suffix(2).elementsEqual("\n\n".utf8) {
            if request.count >= maxRequest { return try send(connection, "431 Request Header Fields Too Large", "") }
            request += try connection.receive(1, deadline: deadline)
        }
        let words = request.prefix { $0 != 0x0D && $0 != 0x0A }.split(separator: 0x20)
        guard words.count == 3, words[0].elementsEqual("GET".utf8) else { return try send(connection, "405 Method Not Allowed", "") }
        let path = words[1].prefix { $0 != UInt8(ascii: "?") }
        guard path.elementsEqual("/metrics".utf8) || path.elementsEqual("/".utf8) else { return try send(connection, "404 Not Found", "") }
        let body: String
        do throws(GrantError) {
            body = try text()
        } catch {
            Terminal.report(error)
            return try send(connection, "503 Service Unavailable", "")
        }
        try send(connection, "200 OK", body)
    }

    private static func send(_ connection: borrowing UnixSocket, _ status: String, _ body: String) throws(Errno) {
        let head =
            "HTTP/1.1 \(status)\r\nContent-Type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\n"
            + "Content-Length: \(body.utf8.count)\r\nConnection: close\r\n\r\n"
        try connection.send(Array((head + body).utf8), deadline: Clock.monotonic + timeout)
    }
}

/// Writes to a pipe on SIGTERM or SIGINT, from a thread that waits for them.
private struct EndSignal {
    private let isArmed = Lock(true)

    init(_ pipe: Int32) {
        var signals = sigset_t()
        sigemptyset(&signals)
        for number in [SIGTERM, SIGINT, SIGHUP] { sigaddset(&signals, number) }
        pthread_sigmask(SIG_BLOCK, &signals, nil)
        let (isArmed, waited) = (isArmed, signals)
        let thread = try? WorkerThread.start("grantfs-end") {
            var waited = waited
            while sigwaitinfo(&waited, nil) < 0, errno == EINTR {}
            isArmed.withLock { if $0 { _ = write(pipe, [1 as UInt8], 1) } }
        }
        thread?.detach()
    }

    /// Must be called before the pipe is closed.
    func disarm() { isArmed.withLock { $0 = false } }
}
