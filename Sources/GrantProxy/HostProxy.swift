import Glibc
import GrantSystem

/// A proxy, for HTTP and by CONNECT for everything else, that connects only to a list of hosts.
///
/// The listening socket may be of another network namespace. Connections are made in this one.
public final class HostProxy: Sendable {
    private let connector: Connector
    private let refusals = Refusals()
    private let slots = Semaphore()

    /// The maximum of concurrent connections. Further ones wait to be accepted.
    private static let maxConnections = 64
    /// How long a client may take to send its request head: nanoseconds.
    private static let headTimeout: Int64 = 30_000_000_000

    public init(_ rules: [HostRule]) {
        connector = Connector(policy: HostPolicy(rules: rules))
        for _ in 0..<HostProxy.maxConnections { slots.post() }
    }

    /// The refusals so far, in order, and the number of those beyond the limit.
    public var refused: (known: [Refusal], others: Int) { refusals.all }

    /// Accepts connections until accept(2) on the blocking listening socket fails permanently.
    public func serve(_ listener: borrowing FileDescriptor) {
        while true {
            slots.wait()
            // No close-on-exec is needed: this process starts no program.
            let number = accept(listener.number, nil, nil)
            if number < 0 {
                let error = errno
                slots.post()
                if error == EINVAL || error == EBADF || error == ENOTSOCK { return }
                // Out of descriptors or memory: other connections will free some.
                if error != EINTR, error != ECONNABORTED { usleep(10_000) }
                continue
            }
            let thread = try? WorkerThread.start("proxy") { [self] in
                let client = FileDescriptor(owning: number)
                if fcntl(number, F_SETFL, O_NONBLOCK) == 0 { serve(client: client) }
                slots.post()
            }
            guard let thread else {
                close(number)
                slots.post()
                continue
            }
            thread.detach()
        }
    }

    private func serve(client: borrowing FileDescriptor) {
        guard let (bytes, length) = head(from: client) else { return }
        let head: RequestHead
        do throws(RequestHead.Failure) {
            head = try RequestHead(bytes[..<length])
        } catch {
            return error == .lengthRequired
                ? answer(client, "411 Length Required", "this proxy needs the length of the body in Content-Length")
                : answer(client, "400 Bad Request", "this is not a request for a proxy")
        }
        let target = "\(head.host):\(head.port)"
        do throws(Connector.Failure) {
            let server = try connector.connect(head.host, port: head.port)
            let rest = bytes[length...]
            if head.isConnect {
                let said = Array("HTTP/1.1 200 Connection established\r\n\r\n".utf8)
                guard send(client.number, said, said.count, HostProxy.noSignal) == said.count else { return }
                var relay = Relay(client: client.number, server: server.number, first: rest, remaining: nil)
                relay.run()
            } else {
                let body = rest.prefix(head.contentLength)
                var relay = Relay(
                    client: client.number, server: server.number, first: (head.forwarded + body)[...],
                    remaining: head.contentLength - body.count
                )
                relay.run()
                finish(client)
            }
        } catch {
            switch error {
            case .refused(let reason):
                refusals.add(target, reason)
                answer(client, "403 Forbidden", "grantfs run does not let the program reach \(target): \(reason)")
            case .unreachable(let reason): answer(client, "502 Bad Gateway", reason)
            }
        }
    }

    /// Reads the request head. Returns the bytes read and how many of them are the head, or nil if
    /// no head comes.
    private func head(from client: borrowing FileDescriptor) -> (bytes: [UInt8], length: Int)? {
        let deadline = Clock.monotonic + HostProxy.headTimeout
        var bytes: [UInt8] = []
        var buffer = [UInt8](repeating: 0, count: 8192)
        while bytes.count < RequestHead.maxLength {
            guard (try? Poll.wait(client.number, writing: false, deadline: deadline)) != nil else { return nil }
            let count = read(client.number, &buffer, buffer.count)
            if count < 0, errno == EINTR || errno == EAGAIN { continue }
            guard count > 0 else { return nil }
            let known = bytes.count
            bytes += buffer[..<count]
            if let length = RequestHead.length(in: bytes, known: known) { return (bytes, length) }
        }
        answer(client, "431 Request Header Fields Too Large", "the head of the request is too long")
        return nil
    }

    private static let noSignal = Int32(truncatingIfNeeded: MSG_NOSIGNAL)

    /// Sends an error page, best effort: a client that does not read gets none.
    private func answer(_ client: borrowing FileDescriptor, _ status: String, _ text: String) {
        let body = text + "\n"
        let fields = "Content-Type: text/plain; charset=utf-8\r\nContent-Length: \(body.utf8.count)\r\nConnection: close\r\n"
        let said = Array("HTTP/1.1 \(status)\r\n\(fields)\r\n\(body)".utf8)
        _ = send(client.number, said, said.count, HostProxy.noSignal)
        finish(client)
    }

    /// Ends the connection after a complete answer. Unread input would make the kernel reset it before the client has read the answer,
    /// and must not end a client that is still sending.
    private func finish(_ client: borrowing FileDescriptor) {
        shutdown(client.number, Int32(SHUT_WR))
        var buffer = [UInt8](repeating: 0, count: 8192)
        let deadline = Clock.monotonic + 1_000_000_000
        while (try? Poll.wait(client.number, writing: false, deadline: deadline)) != nil, read(client.number, &buffer, buffer.count) > 0 {}
    }
}
