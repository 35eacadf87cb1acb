import Glibc
import GrantSystem

/// A proxy for HTTP, and for everything else by CONNECT, that reaches the hosts of a list and no others.
///
/// What it accepts on may be a socket of another network namespace; connections are made in this one.
public final class HostProxy: Sendable {
    private let connector: Connector
    private let refusals = Refusals()
    private let slots = Semaphore()

    /// Connections at once. Further ones wait to be accepted.
    private static let most = 64
    /// How long a program may take to say what it wants: nanoseconds.
    private static let patience: Int64 = 30_000_000_000

    public init(_ rules: [HostRule]) {
        connector = Connector(policy: HostPolicy(rules: rules))
        for _ in 0..<HostProxy.most { slots.post() }
    }

    /// What was refused so far, in the order in which it came; and how much more there was than is kept.
    public var refused: (known: [Refusal], others: Int) { refusals.all }

    /// Accepts connections for as long as the socket, which listens and blocks, takes any.
    public func serve(_ listener: borrowing FileDescriptor) {
        while true {
            slots.wait()
            // This process starts no program that could inherit it.
            let number = accept(listener.number, nil, nil)
            if number < 0 {
                let error = errno
                slots.post()
                if error == EINVAL || error == EBADF || error == ENOTSOCK { return }
                // Out of descriptors or memory: those who have some will give them back.
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
                ? answer(client, "411 Length Required", "this proxy wants to know the length of what is sent beforehand")
                : answer(client, "400 Bad Request", "this is no request for a proxy")
        }
        let target = "\(head.host):\(head.port)"
        do throws(Connector.Failure) {
            let server = try connector.connect(head.host, port: head.port)
            let rest = bytes[length...]
            if head.isConnect {
                let said = Array("HTTP/1.1 200 Connection established\r\n\r\n".utf8)
                guard send(client.number, said, said.count, HostProxy.quiet) == said.count else { return }
                var relay = Relay(client: client.number, server: server.number, first: rest, left: nil)
                relay.run()
            } else {
                let body = rest.prefix(head.contentLength)
                var relay = Relay(
                    client: client.number, server: server.number, first: (head.forwarded + body)[...], left: head.contentLength - body.count
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

    /// What has been read, and how much of it is the head; nil when none comes.
    private func head(from client: borrowing FileDescriptor) -> (bytes: [UInt8], length: Int)? {
        let deadline = Clock.monotonic + HostProxy.patience
        var bytes: [UInt8] = []
        var buffer = [UInt8](repeating: 0, count: 8192)
        while bytes.count < RequestHead.most {
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

    private static let quiet = Int32(truncatingIfNeeded: MSG_NOSIGNAL)

    /// Best effort: a program that does not read gets none.
    private func answer(_ client: borrowing FileDescriptor, _ status: String, _ text: String) {
        let body = text + "\n"
        let fields = "Content-Type: text/plain; charset=utf-8\r\nContent-Length: \(body.utf8.count)\r\nConnection: close\r\n"
        let said = Array("HTTP/1.1 \(status)\r\n\(fields)\r\n\(body)".utf8)
        _ = send(client.number, said, said.count, HostProxy.quiet)
        finish(client)
    }

    /// The answer is all there is. What was sent besides must not make the kernel reset the connection before that was read, nor end a program that is still sending it.
    private func finish(_ client: borrowing FileDescriptor) {
        shutdown(client.number, Int32(SHUT_WR))
        var buffer = [UInt8](repeating: 0, count: 8192)
        let deadline = Clock.monotonic + 1_000_000_000
        while (try? Poll.wait(client.number, writing: false, deadline: deadline)) != nil, read(client.number, &buffer, buffer.count) > 0 {}
    }
}
