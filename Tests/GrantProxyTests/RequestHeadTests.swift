import Testing

@testable import GrantProxy

@Suite("Proxy requests")
struct RequestHeadTests {
    private func head(_ text: String) throws -> RequestHead { try RequestHead(Array(text.utf8)) }

    @Test("A page request is forwarded with the requested host as its only host")
    func page() throws {
        let request =
            "GET http://Example.org:8080/a?b=c#d HTTP/1.1\r\nHost: evil.net\r\nProxy-Authorization: x\r\nConnection: keep-alive, X-Hop\r\nX-Hop: 1\r\nAccept: */*\r\n\r\n"
        let head = try head(request)
        #expect(!head.isConnect && head.host == .name("example.org") && head.port == 8080 && head.contentLength == 0)
        #expect(
            String(decoding: head.forwarded, as: UTF8.self)
                == "GET /a?b=c HTTP/1.1\r\nHost: example.org:8080\r\nAccept: */*\r\nConnection: close\r\n\r\n")
    }

    @Test("A CONNECT request names a host and a port")
    func connection() throws {
        let head = try head("CONNECT [2001:db8::1]:443 HTTP/1.1\r\nHost: evil.net\r\n\r\n")
        #expect(head.isConnect && head.host.description == "[2001:db8::1]" && head.port == 443 && head.forwarded.isEmpty)
    }

    @Test(
        "An ambiguous request is refused as malformed",
        arguments: [
            "GET / HTTP/1.1\r\nHost: example.org\r\n\r\n", "GET http://user@example.org/ HTTP/1.1\r\n\r\n",
            "GET https://example.org/ HTTP/1.1\r\n\r\n",
            "GET  http://example.org/ HTTP/1.1\r\n\r\n", "GET http://example.org/ HTTP/2\r\n\r\n", "CONNECT example.org HTTP/1.1\r\n\r\n",
            "CONNECT example.org:443:80 HTTP/1.1\r\n\r\n", "GET http://example.org/ HTTP/1.1\nX: y\r\n\r\n",
            "GET http://example.org/ HTTP/1.1\r\nX: y\rZ: w\r\n\r\n", "GET http://example.org/ HTTP/1.1\r\nX: y\r\n folded\r\n\r\n",
            "GET http://example.org/ HTTP/1.1\r\nX : y\r\n\r\n", "GET http://example.org/ HTTP/1.1\r\nX: \u{0}\r\n\r\n",
            "POST http://example.org/ HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
            "POST http://example.org/ HTTP/1.1\r\nContent-Length: +1\r\n\r\n", "GET http://example.org\\@evil.net/ HTTP/1.1\r\n\r\n",
        ])
    func malformed(text: String) { #expect(throws: RequestHead.Failure.malformed) { try head(text) } }

    @Test("A request body requires a content length")
    func length() throws {
        #expect(try head("POST http://example.org/ HTTP/1.1\r\nContent-Length: 12\r\n\r\n").contentLength == 12)
        #expect(throws: RequestHead.Failure.lengthRequired) {
            try head("POST http://example.org/ HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n")
        }
    }
}
