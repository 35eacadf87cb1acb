import CGrantHTTP
import Glibc
import GrantModel
import GrantSystem

/// A listening socket.
package struct ListeningSocket {
    let place: chttp_place

    package var port: UInt16 { place.port }
    package var isLoopback: Bool { place.is_loopback }
    package var isAny: Bool { place.is_any }

    /// `.usage`, `.system`.
    package init(address: String, port: UInt16) throws(GrantError) {
        var (place, reason) = (chttp_place(), [CChar](repeating: 0, count: 256))
        guard chttp_listen(address, port, &place, &reason, reason.count) else {
            throw GrantError(.system, "nothing can be served at \(address), port \(port)", cause: WebServer.text(reason))
        }
        self.place = place
    }

    /// A Unix socket that listens.
    package init(_ socket: consuming FileDescriptor) {
        place = chttp_place(socket: socket.release(), port: 0, is_loopback: true, is_any: false)
    }
}

/// A request of a browser or a program.
package struct WebRequest {
    package enum Kind { case header, cookie, argument }

    fileprivate let request: OpaquePointer

    package var method: String { String(cString: chttp_method(request)) }
    package var path: String { String(cString: chttp_path(request)) }
    package var peer: String {
        var text = [CChar](repeating: 0, count: 64)
        chttp_peer(request, &text, text.count)
        return WebServer.text(text)
    }

    /// The user on the other side of a Unix socket, or nil.
    package var user: UInt32? {
        let user = chttp_user(request)
        return user < 0 ? nil : UInt32(truncatingIfNeeded: user)
    }

    package var body: [UInt8] {
        var length = 0
        let bytes = chttp_body(request, &length)
        return Array(UnsafeRawBufferPointer(start: bytes, count: bytes == nil ? 0 : length))
    }

    /// Returns all values with that name, at most eight.
    package func values(_ kind: Kind, _ name: String) -> [String] {
        let kind = [Kind.header: CHTTP_HEADER, .cookie: CHTTP_COOKIE, .argument: CHTTP_ARGUMENT][kind] ?? CHTTP_HEADER
        var values: [String] = []
        while values.count < 8, let value = chttp_value(request, kind, name, values.count) { values.append(String(cString: value)) }
        return values
    }

    /// Returns nil if it is missing or ambiguous.
    package func only(_ kind: Kind, _ name: String) -> String? {
        let values = values(kind, name)
        return values.count == 1 ? values[0] : nil
    }

    /// The subject of the client's certificate, or nil if it has none that is trusted.
    package var identity: String? {
        var text = [CChar](repeating: 0, count: 512)
        return chttp_identity(request, &text, text.count) ? WebServer.text(text) : nil
    }

    /// Exempts the connection from being closed when there are too many.
    package func admit() { chttp_admit(request) }
}

package struct WebReply {
    package var status: UInt32
    package var type = "application/json"
    package var body: [UInt8] = []
    package var headers: [(String, String)] = []

    package init(status: UInt32, type: String = "application/json", body: [UInt8] = [], headers: [(String, String)] = []) {
        (self.status, self.type, self.body, self.headers) = (status, type, body, headers)
    }
}

/// An HTTP server, with one thread or one for each connection.
package final class WebServer {
    package struct Limits {
        package var connections: UInt32 = 64
        package var head = 16_384
        package var body = 4_096
        package var seconds: UInt32 = 10
        /// Whether an answer may block: then each connection has a thread.
        package var mayWait = false

        package init() {}
    }

    private final class Handler {
        let answer: @Sendable (WebRequest) -> WebReply
        init(_ answer: @escaping @Sendable (WebRequest) -> WebReply) { self.answer = answer }
    }

    private let server: OpaquePointer
    private let handler: Unmanaged<Handler>

    /// The texts are PEM. `answer` must not block unless `limits` permit it. Throws `.system` if it does not start.
    package init(
        _ place: ListeningSocket, certificate: String?, key: String?, authorities: String?, limits: Limits,
        answer: @escaping @Sendable (WebRequest) -> WebReply
    ) throws(GrantError) {
        var reason = [CChar](repeating: 0, count: 256)
        let handler = Unmanaged.passRetained(Handler(answer))
        var settings = chttp_settings()
        (settings.socket, settings.is_loopback) = (place.place.socket, place.isLoopback)
        (settings.connections, settings.seconds) = (limits.connections, limits.seconds)
        settings.may_wait = limits.mayWait
        (settings.head_limit, settings.body_limit) = (limits.head, limits.body)
        settings.context = handler.toOpaque()
        settings.answer = { context, request in
            guard let context, let request else { return }
            WebServer.give(Unmanaged<Handler>.fromOpaque(context).takeUnretainedValue().answer(WebRequest(request: request)), to: request)
        }
        let server = WebServer.withText(certificate) { certificate in
            WebServer.withText(key) { key in
                WebServer.withText(authorities) { authorities in
                    (settings.certificate, settings.key, settings.authorities) = (certificate, key, authorities)
                    return chttp_start(&settings, &reason, reason.count)
                }
            }
        }
        guard let server else {
            handler.release()
            throw GrantError(.system, "nothing can be served", cause: WebServer.text(reason))
        }
        (self.server, self.handler) = (server, handler)
    }

    /// Closes every connection.
    deinit {
        chttp_stop(server)
        handler.release()
    }

    /// The headers of every response: no other page may embed, read or use it, and it loads nothing from elsewhere.
    static let headers = [
        (
            "Content-Security-Policy",
            "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
                + "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
        ),
        ("X-Content-Type-Options", "nosniff"), ("X-Frame-Options", "DENY"), ("Referrer-Policy", "no-referrer"),
        ("Cross-Origin-Opener-Policy", "same-origin"), ("Cross-Origin-Resource-Policy", "same-origin"), ("Cache-Control", "no-store"),
    ]

    private static func give(_ reply: WebReply, to request: OpaquePointer) {
        let all = headers + [("Content-Type", reply.type)] + reply.headers
        let texts = all.map { (strdup($0.0), strdup($0.1)) }
        defer {
            for (name, value) in texts {
                free(name)
                free(value)
            }
        }
        let fields = texts.map { chttp_header(name: $0.0, value: $0.1) }
        reply.body.withUnsafeBytes { chttp_reply(request, reply.status, fields, fields.count, $0.baseAddress ?? empty, $0.count) }
    }

    nonisolated(unsafe) private static let empty = UnsafeRawPointer(UnsafeMutableRawPointer.allocate(byteCount: 1, alignment: 1))

    static func text(_ buffer: [CChar]) -> String {
        String(decoding: buffer.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
    }

    private static func withText<Result>(_ text: String?, _ body: (UnsafePointer<CChar>?) -> Result) -> Result {
        guard let text else { return body(nil) }
        return text.withCString { body($0) }
    }
}
