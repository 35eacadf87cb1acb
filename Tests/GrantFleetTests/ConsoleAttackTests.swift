import Foundation
import Glibc
import TestSupport
import Testing

extension GrantFleetTests {
    @Suite(.enabled(if: Machine.offers("curl"), "\(Machine.needs("curl"))"))
    struct AnAttackerOfTheConsole {
        @Test("The console admits no client without a token and a whole session")
        func sessions() throws {
            let fleet = try FleetFixture(hosts: ["h1"], lease: "20s")
            let id = try fleet.administer("grant", "--fleet", try fleet.source(), "--view", "v", "--name", "x").orThrow().trimmed
            let console = try ConsoleFixture(fleet)
            let token = try #require(console.token)
            #expect(token.count >= 32)
            for wrong in ["", "x", String(token.dropLast()), token + "0", String(repeating: "0", count: token.count)] {
                let answer = try console.ask("/api/login", ConsoleFixture.post("{\"token\":\"\(wrong)\"}", console.origin))
                #expect(answer.status == 403 && answer.headers["set-cookie"] == nil, "\(wrong): \(answer)")
            }
            let key = try console.logIn()
            #expect(try console.ask("/api/state", console.keyed(key)).status == 200)
            // A cookie goes to every port of a host, so it is worth nothing alone.
            let change = ConsoleFixture.post("{\"id\":\"\(id)\",\"revision\":1}", console.origin)
            for (path, words) in [
                ("/api/state", [String]()), ("/api/grant?id=\(id)", []), ("/api/revoke", change), ("/api/logout", change),
            ] {
                #expect(try console.ask(path, words).status == 401, "\(path) without the key")
                #expect(try console.ask(path, words + console.keyed(key), cookie: false).status == 401, "\(path) without the cookie")
                #expect(try console.ask(path, words + console.keyed(String(key.reversed()))).status == 401, "\(path) with another key")
                #expect(try console.ask(path, words + console.keyed(key) + console.keyed(key)).status == 401, "\(path) with two keys")
            }
            let other = try ConsoleFixture(fleet)
            #expect(try other.ask("/api/state", other.keyed(key)).status == 401, "a session of another console")
            let second = try console.logIn()
            #expect(try console.ask("/api/state", console.keyed(key)).status == 401, "the cookie is the second session's")
            #expect(try console.ask("/api/logout", ConsoleFixture.post("{}", console.origin + console.keyed(second))).status == 204)
            #expect(try console.ask("/api/state", console.keyed(second)).status == 401)
            let cookie =
                try console.ask("/api/login", ConsoleFixture.post("{\"token\":\"\(token)\"}", console.origin)).headers["set-cookie"]?.first
                ?? ""
            #expect(cookie.contains("; HttpOnly") && cookie.contains("; SameSite=Strict") && cookie.contains("; Path=/"), "\(cookie)")
            #expect(try fleet.administer("list", "--fleet").orThrow().text.contains("active"))
        }

        @Test("The console refuses requests of another origin or host name")
        func origins() throws {
            let fleet = try FleetFixture(hosts: ["h1"], lease: "20s")
            let id = try fleet.administer("grant", "--fleet", try fleet.source(), "--view", "v", "--name", "x").orThrow().trimmed
            let console = try ConsoleFixture(fleet)
            let key = try console.logIn()
            let body = ConsoleFixture.post("{\"id\":\"\(id)\",\"revision\":1}", console.keyed(key))
            let header = { (text: String) in ["--header", text] }
            for origin in [
                "Origin: https://evil.example", "Origin: null", "Origin: http://127.0.0.1:1", "Origin: http://localhost:\(console.port)",
                "Origin: https://127.0.0.1:\(console.port)", "Origin: \(console.url).evil.example", "Origin;",
            ] {
                for path in ["/api/revoke", "/api/login"] {
                    #expect(try console.ask(path, body + header(origin)).status == 403, "\(path), \(origin)")
                }
                #expect(try console.ask("/api/state", console.keyed(key) + header(origin)).status == 403, "\(origin)")
            }
            #expect(try console.ask("/api/revoke", body).status == 403, "a browser says where a POST comes from")
            #expect(try console.ask("/api/revoke", body + console.origin + header("Origin: https://evil.example")).status == 403)
            for site in ["cross-site", "same-site", "none"] {
                #expect(try console.ask("/api/state", console.keyed(key) + header("Sec-Fetch-Site: \(site)")).status == 403, "\(site)")
            }
            for host in [
                "evil.example", "evil.example:\(console.port)", "127.0.0.1.evil.example", "127.0.0.2:\(console.port)", "[127.0.0.1]",
                "a:b:c", "",
            ] {
                for path in ["/", "/console.js", "/api/state"] {
                    let answer = try console.ask(path, console.keyed(key) + header(host.isEmpty ? "Host;" : "Host: \(host)"))
                    #expect([400, 421].contains(answer.status), "\(path) of \(host): \(answer)")
                }
            }
            for type in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"] {
                let form = ["--data-binary", "{\"id\":\"\(id)\",\"revision\":1}", "--header", "Content-Type: \(type)"]
                #expect(try console.ask("/api/revoke", form + console.keyed(key) + console.origin).status == 415, "\(type)")
            }
            #expect(try console.ask("/api/revoke?id=\(id)", console.keyed(key) + console.origin).status == 405, "by GET")
            // No other page may read an answer, show it in a frame, or send the header that it would need.
            let preflight = try console.ask(
                "/api/revoke",
                ["--request", "OPTIONS", "--header", "Access-Control-Request-Method: POST"] + header("Origin: https://evil.example"))
            #expect(preflight.status == 403 && !preflight.headers.keys.contains { $0.hasPrefix("access-control") })
            for path in ["/", "/console.js", "/console.css", "/icon.svg", "/nothing", "/api/state"] {
                let answer = try console.ask(path)
                let policy = answer.headers["content-security-policy"]?.first ?? ""
                #expect(
                    policy.contains("default-src 'none'") && policy.contains("frame-ancestors 'none'") && !policy.contains("unsafe"),
                    "\(path): \(answer.headers)")
                #expect(answer.headers["x-frame-options"] == ["DENY"] && answer.headers["cache-control"] == ["no-store"], "\(path)")
            }
            let page = try ["/", "/console.js", "/console.css"].map { try console.ask($0).body }.joined()
            for word in ["http:", "https:", "innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "style="] {
                #expect(!page.contains(word), "the page has \(word)")
            }
            #expect(try fleet.administer("list", "--fleet").orThrow().text.contains("active"), "nothing of all that has changed anything")
        }

        @Test("The console refuses oversized and malformed requests and goes on")
        func sizes() throws {
            let fleet = try FleetFixture(hosts: ["h1"], lease: "20s")
            let console = try ConsoleFixture(fleet)
            let key = try console.logIn()
            let large = String(repeating: "x", count: 5_000)
            let post = { (body: String) in ConsoleFixture.post(body, console.origin + console.keyed(key)) }
            #expect(try console.ask("/api/login", post("{\"token\":\"\(large)\"}")).status == 413)
            #expect(try console.ask("/api/login", post("{}") + ["--header", "Transfer-Encoding: chunked"]).status == 411)
            #expect(try [0, 413, 431].contains(console.ask("/", "--header", "X-Large: \(String(repeating: "x", count: 60_000))").status))
            #expect(try [0, 414, 431].contains(console.ask("/\(String(repeating: "x", count: 60_000))").status))
            for body in [
                "", "nonsense", "[]", "null", "{\"id\":1}", "{\"id\":\"x\",\"revision\":\"y\"}", String(repeating: "[", count: 4_000),
                "{\"a\":1,\"a\":2}",
            ] {
                let status = try console.ask("/api/revoke", post(body)).status
                #expect((400...415).contains(status), "\(body.prefix(20)): \(status)")
            }
            #expect(try console.ask("/api/revoke", post("{\"id\":\"\(String(repeating: "0", count: 32))\",\"revision\":1}")).status == 404)
            for method in ["PUT", "DELETE", "TRACE", "PATCH"] {
                #expect(try [400, 403, 405, 501].contains(console.ask("/", "--request", method).status), "\(method)")
            }
            for path in ["/../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "/console.js/..", "//", "/api", "/api/nothing"] {
                #expect(try [401, 403, 404].contains(console.ask(path, "--path-as-is").status), "\(path)")
            }
            for text in [
                "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: evil.example\r\n\r\n", "GET / HTTP/1.1\r\n\r\n", "\u{1}\u{2}\r\n\r\n",
                "GET http://evil.example/ HTTP/1.1\r\nHost: evil.example\r\n\r\n",
            ] {
                let answer = Self.raw(console.port, text)
                #expect(!answer.hasPrefix("HTTP/1.1 200"), "\(text): \(answer)")
            }
            #expect(try console.ask("/api/state", console.keyed(key)).status == 200)
        }

        private static func raw(_ port: Int, _ text: String) -> String {
            guard let socket = connected(port) else { return "" }
            defer { close(socket) }
            _ = send(socket, text, text.utf8.count, Int32(MSG_NOSIGNAL))
            var item = pollfd(fd: socket, events: Int16(POLLIN), revents: 0)
            guard poll(&item, 1, 15_000) > 0 else { return "" }
            var buffer = [UInt8](repeating: 0, count: 4096)
            return String(decoding: buffer.prefix(max(0, recv(socket, &buffer, buffer.count, 0))), as: UTF8.self)
        }

        private static func connected(_ port: Int) -> Int32? {
            let socket = Glibc.socket(AF_INET, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
            var address = sockaddr_in()
            address.sin_family = sa_family_t(AF_INET)
            address.sin_port = in_port_t(UInt16(port).bigEndian)
            address.sin_addr.s_addr = UInt32(0x7F00_0001).bigEndian
            let result = withUnsafePointer(to: &address) {
                $0.withMemoryRebound(to: sockaddr.self, capacity: 1) { connect(socket, $0, socklen_t(MemoryLayout<sockaddr_in>.size)) }
            }
            if result == 0 { return socket }
            close(socket)
            return nil
        }

        @Test("The console cuts off slow clients and serves others")
        func slowClients() throws {
            let fleet = try FleetFixture(hosts: ["h1"], lease: "20s")
            let console = try ConsoleFixture(fleet)
            let key = try console.logIn()
            var slow: [Int32] = []
            defer { slow.forEach { close($0) } }
            for _ in 0..<300 { if let socket = Self.connected(console.port) { slow.append(socket) } }
            #expect(slow.count >= 100)
            for socket in slow { _ = send(socket, "GET / HTTP/1.1\r\n", 16, Int32(MSG_NOSIGNAL)) }
            let start = Machine.milliseconds
            for _ in 0..<5 {
                #expect(try console.ask("/api/state", console.keyed(key)).status == 200)
                for socket in slow { _ = send(socket, "X", 1, Int32(MSG_NOSIGNAL)) }
            }
            #expect(Machine.milliseconds - start < 30_000 * Machine.slowness)
            // A byte now and then does not keep a connection: after ten seconds it is over.
            let deadline = Machine.milliseconds + 40_000 * Machine.slowness
            var left = slow
            while !left.isEmpty, Machine.milliseconds < deadline {
                pause(milliseconds: 500)
                left.removeAll { socket in
                    var byte: UInt8 = 0
                    let isOver = send(socket, "x", 1, Int32(MSG_NOSIGNAL)) < 0 && errno != EAGAIN
                    return isOver || recv(socket, &byte, 1, Int32(MSG_DONTWAIT)) == 0
                }
            }
            #expect(left.isEmpty, "\(left.count) of \(slow.count) are still there")
            #expect(try console.ask("/api/state", console.keyed(key)).status == 200)
        }
    }
}
