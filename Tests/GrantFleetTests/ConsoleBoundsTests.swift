import CGrantHTTP
import Foundation
import Glibc
import TestSupport
import Testing

extension GrantFleetTests {
    @Suite(.enabled(if: Machine.offers("curl"), "\(Machine.needs("curl"))"))
    struct AConsoleThatIsUnderAttack {
        @Test("The console records more revocations while a host confirms none")
        func silentHost() throws {
            let fleet = try FleetFixture(hosts: ["h1", "h2"], lease: "60s")
            let source = try fleet.source()
            for number in 1...11 { try fleet.administer("grant", "--fleet", source, "--view", "v", "--name", "x\(number)").orThrow() }
            let console = try ConsoleFixture(fleet)
            let key = try console.logIn()
            let state = try console.awaitState(key, "granted") {
                $0.fleet?.grants.count == 11 && $0.fleet?.grants.allSatisfy { $0.confirmed == 2 } == true
            }
            fleet.signalAgent("h2", SIGSTOP)
            defer { fleet.signalAgent("h2", SIGCONT) }
            for grant in state.fleet?.grants ?? [] {
                // Those before are on record, and wait for the host.
                let status = try Self.whenItMay { try console.change("revoke", grant.id, revision: grant.revision, key: key).status }
                #expect(status == 202, "\(grant.name)")
            }
            let after = try console.awaitState(key, "revoked, and confirmed by the other", within: 20) {
                $0.fleet?.grants.allSatisfy { $0.state == "revoked" && $0.waiting == 1 && $0.confirmed == 1 } == true
            }
            #expect(after.changes.allSatisfy { $0.recorded && !$0.over }, "\(after.changes)")
        }

        /// Eight changes may be on their way to etcd at a time.
        private static func whenItMay(_ status: () throws -> Int) throws -> Int {
            for _ in 0..<20 {
                let status = try status()
                if status != 503 { return status }
                pause(milliseconds: 100)
            }
            return 503
        }

        @Test("The console reports a restoration without effect and records none")
        func nothingToRestore() throws {
            let fleet = try FleetFixture(hosts: ["h1"], lease: "20s")
            let id = try fleet.administer("grant", "--fleet", try fleet.source(), "--view", "v", "--name", "x").orThrow().trimmed
            let console = try ConsoleFixture(fleet)
            let key = try console.logIn()
            let state = try console.awaitState(key, "granted") { $0.grant(id)?.confirmed == 1 }
            #expect(try console.change("restore", id, revision: try #require(state.grant(id)).revision, key: key).status == 202)
            let change = try #require(try console.awaitState(key, "over") { $0.changes.last?.over == true }.changes.last)
            #expect(change.failure?.contains("“x” is not restored: it is active already") == true && !change.recorded, "\(change)")
            #expect(!(try fleet.administer("log", "--fleet").orThrow().text.contains("restored")))
            try fleet.files.wait(until: "it is in the log") { console.said.contains("not restored: “x”") }
            #expect(!console.said.contains("console: restored"), "\(console.said)")
            let again = try fleet.administer("restore", "--fleet", "x").orThrow().text
            #expect(again.hasPrefix("active already: x "), "\(again)")
        }

        @Test("The console logs refused logins once a second")
        func refusedLogins() throws {
            let fleet = try FleetFixture(hosts: [], lease: "20s")
            let console = try ConsoleFixture(fleet)
            let start = Machine.milliseconds
            #expect(try Self.logins(console, "wrong", count: 300).allSatisfy { $0 == "403" })
            pause(milliseconds: 1_100)
            #expect(try Self.logins(console, "wrong", count: 1) == ["403"])
            try fleet.files.wait(until: "the last is said") { console.said.contains("since the last such line") }
            let lines = console.said.split(separator: "\n").filter { $0.contains("is refused: another token") }
            #expect(Double(lines.count) <= (Machine.milliseconds - start) / 1_000 + 1, "\(lines)")
            // None is lost from the count.
            let count = lines.reduce(0) { $0 + (Int($1.firstMatch(of: /, ([0-9]+) since/)?.1 ?? "1") ?? 0) }
            #expect(count == 301, "\(lines)")
        }

        /// Many logins on one connection: the status of each.
        private static func logins(_ console: ConsoleFixture, _ token: String, count: Int) throws -> [String] {
            try Command.run(
                ["curl", "--silent", "--output", "/dev/null", "--write-out", "%{http_code}\n"]
                    + ConsoleFixture.post("{\"token\":\"\(token)\"}", console.origin) + ["\(console.url)/api/login?[1-\(count)]"],
                within: 60
            ).text.split(separator: "\n").map(String.init)
        }

        @Test("The console drops log lines while its output blocks, and counts them")
        func nobodyReads() throws {
            let fleet = try FleetFixture(hosts: [], lease: "20s")
            let pipe = fleet.files.base + "/errors"
            #expect(mkfifo(pipe, 0o600) == 0)
            let reader = open(pipe, O_RDONLY | O_NONBLOCK | O_CLOEXEC)
            defer { close(reader) }
            // F_SETPIPE_SZ
            #expect(fcntl(reader, 1031, 4_096) == 4_096)
            let console = try ConsoleFixture(fleet, log: pipe)
            let token = try #require(console.token)
            let count = 400
            #expect(try Self.logins(console, token, count: count).count { $0 == "200" } == count)
            #expect(try console.ask("/api/state", console.keyed(try console.logIn())).status == 200)
            var said = ""
            try fleet.files.wait(until: "it says that lines are missing", within: 20) {
                var buffer = [UInt8](repeating: 0, count: 65_536)
                let size = read(reader, &buffer, buffer.count)
                if size > 0 { said += String(decoding: buffer[..<size], as: UTF8.self) }
                return said.contains("lines were dropped here")
            }
            let dropped = Int(said.firstMatch(of: /console: ([0-9]+) lines were dropped here/)?.1 ?? "") ?? 0
            let came = said.split(separator: "\n").count { $0.hasSuffix("the token came in from 127.0.0.1") }
            #expect(dropped > 100 && dropped + came == count + 1, "\(dropped) dropped, \(came) said")
            // It ends although no process reads its output.
            #expect(try Self.logins(console, token, count: 300).count { $0 == "200" } == 300)
            kill(console.child.pid, SIGTERM)
            #expect(console.child.wait(within: 20) == 0)
        }

        @Test("Each console of a machine and each tunnel has its own session cookie")
        func cookies() throws {
            let fleet = try FleetFixture(hosts: [], lease: "20s")
            let consoles = [try ConsoleFixture(fleet), try ConsoleFixture(fleet)]
            consoles[1].cookies = consoles[0].cookies
            let keys = try consoles.map { try $0.logIn() }
            for (console, key) in zip(consoles, keys) { #expect(try console.ask("/api/state", console.keyed(key)).status == 200) }
            #expect(try consoles[1].ask("/api/state", consoles[1].keyed(keys[0])).status == 401)
            // A tunnel has a port of its own, and the browser knows no other.
            let (console, token) = (consoles[0], try #require(consoles[0].token))
            let login = { (host: String) throws in
                try console.ask(
                    "/api/login",
                    ConsoleFixture.post("{\"token\":\"\(token)\"}", ["--header", "Host: \(host)", "--header", "Origin: http://\(host)"]),
                    cookie: false)
            }
            let answer = try login("127.0.0.1:9999")
            let cookie = try #require(answer.headers["set-cookie"]?.first?.split(separator: ";").first.map(String.init))
            #expect(cookie.hasPrefix("grantfs-console-9999="), "\(cookie)")
            struct Body: Decodable { let key: String }
            let key = try answer.decoded(Body.self).key
            let value = cookie.split(separator: "=")[1]
            for (host, status) in [("127.0.0.1:9999", 200), ("localhost:9999", 401), ("127.0.0.1:9998", 401), ("127.0.0.1", 401)] {
                let port = host.split(separator: ":").dropFirst().first ?? "80"
                let words = ["--header", "Host: \(host)", "--header", "Cookie: grantfs-console-\(port)=\(value)"] + console.keyed(key)
                #expect(try console.ask("/api/state", words, cookie: false).status == status, "\(host)")
            }
        }

        @Test(
            "The console answers other clients during a flood of connections",
            .enabled(if: Flood.address != nil, "needs an address that is not the machine's own"), arguments: [false, true])
        func flood(isLocal: Bool) throws {
            let fleet = try FleetFixture(hosts: [], lease: "20s", .certificates)
            let place = fleet.servers.directory
            let console = try ConsoleFixture(
                fleet,
                [
                    "--certificate", place + "/server.pem", "--key", place + "/server.key", "--client-ca", place + "/ca.pem", "--name",
                    "127.0.0.1",
                ],
                place: "0.0.0.0:0")
            console.options = [
                "--insecure", "--max-time", "20", "--cert", place + "/named.pem", "--key", place + "/named.key", "--header",
                "Host: 127.0.0.1:\(console.port)",
            ]
            let address = try #require(Flood.address)
            let target = isLocal ? "https://\(address):\(console.port)/" : "https://127.0.0.1:\(console.port)/"
            #expect(try console.ask(target).status == 200)
            let flood = Flood(isLocal ? "127.0.0.1" : address, console.port)
            defer { flood.end() }
            pause(milliseconds: 500)
            let statuses = try (0..<20).map { _ in try console.ask(target).status }
            #expect(flood.count > 200)
            // Some may be late on a busy machine. Without the limits nearly all are.
            #expect(statuses.count { $0 == 200 } >= 15, "\(statuses), \(flood.count) connections")
        }

        @Test(
            "The console limits the connections of each address",
            .enabled(if: Flood.address != nil, "needs an address that is not the machine's own"))
        func parts() throws {
            let fleet = try FleetFixture(hosts: [], lease: "20s", .certificates)
            let place = fleet.servers.directory
            let tls = [
                "--certificate", place + "/server.pem", "--key", place + "/server.key", "--client-ca", place + "/ca.pem", "--name", "x",
            ]
            let console = try ConsoleFixture(fleet, tls, place: "0.0.0.0:0")
            let address = try #require(Flood.address)
            var held: [Int32] = []
            defer { held.forEach { close($0) } }
            let hold = { (address: String, count: Int) in
                held += (0..<count).compactMap { _ in Flood.connected(address, console.port) }
            }
            // A client that is silent for a while, and the oldest one when the machine's own users
            // take every connection.
            hold(address, 1)
            pause(milliseconds: 100)
            hold("127.0.0.1", 120)
            let open = { (range: Range<Int>) in range.count { Flood.isOpen(held[$0]) } }
            try fleet.files.wait(until: "the machine's own have their part", within: 5) { (30...48).contains(open(1..<121)) }
            #expect(open(0..<1) == 1)
            hold(address, 40)
            try fleet.files.wait(until: "the address has its part", within: 5) { (1...16).contains(open(121..<161)) }
            held.forEach { close($0) }
            held = []
            // Those that are gone again at once count as well. The machine's own users, who are many, may have more.
            let isRefused = { (address: String) in
                let (flood, end) = (Flood(address, console.port, holding: 0), Machine.milliseconds + 30_000)
                defer { flood.end() }
                while Machine.milliseconds < end {
                    guard let socket = Flood.connected(address, console.port) else { continue }
                    defer { close(socket) }
                    if !Flood.isOpen(socket, within: 200) { return true }
                }
                return false
            }
            #expect(isRefused(address))
            let free = (0..<20).count { _ in
                guard let socket = Flood.connected("127.0.0.1", console.port) else { return false }
                defer { close(socket) }
                return Flood.isOpen(socket, within: 10)
            }
            #expect(free == 20)
            #expect(isRefused("127.0.0.1"))
            pause(milliseconds: 1_000)
            hold(address, 1)
            #expect(Flood.isOpen(try #require(held.first), within: 300))
        }

        @Test("The console counts an IPv6 address by its network")
        func clients() throws {
            let cases: [(String, String, Bool)] = [
                ("192.0.2.1", "192.0.2.1", true), ("192.0.2.1", "192.0.2.2", false), ("127.0.0.1", "127.9.9.9", true),
                ("127.0.0.1", "::1", true),
                ("2001:db8:1:2::1", "2001:db8:1:2:ffff::9", true), ("2001:db8:1:2::1", "2001:db8:1:3::1", false),
                ("::ffff:192.0.2.1", "192.0.2.1", true), ("::ffff:192.0.2.1", "::ffff:192.0.2.2", false), ("::ffff:127.0.0.1", "::1", true),
                ("192.0.2.1", "127.0.0.1", false), ("2001:db8::1", "::1", false),
            ]
            for (one, other, isSame) in cases {
                let result = try Flood.withAddress(one) { one in try Flood.withAddress(other) { chttp_is_same_client(one, $0) } }
                #expect(result == isSame, "\(one), \(other)")
            }
        }
    }
}

/// A client that connects without pause and keeps its newest connections.
private final class Flood: @unchecked Sendable {
    private let lock = NSLock()
    private var (isEnding, made, running) = (false, 0, 0)

    init(_ address: String, _ port: Int, holding count: Int = 100) {
        running = 2
        for _ in 0..<2 {
            Thread.detachNewThread { [self] in
                var held: [Int32] = []
                while !locked({ isEnding }) {
                    if let socket = Flood.connected(address, port) { held.append(socket) }
                    locked { made += 1 }
                    if held.count > count { close(held.removeFirst()) }
                }
                held.forEach { close($0) }
                locked { running -= 1 }
            }
        }
    }

    private func locked<Result>(_ body: () -> Result) -> Result {
        lock.lock()
        defer { lock.unlock() }
        return body()
    }

    var count: Int { locked { made } }

    func end() {
        locked { isEnding = true }
        while locked({ running > 0 }) { pause(milliseconds: 5) }
    }

    /// Whether the other side has not ended it.
    static func isOpen(_ socket: Int32, within milliseconds: Int32 = 0) -> Bool {
        var item = pollfd(fd: socket, events: Int16(POLLIN), revents: 0)
        _ = poll(&item, 1, milliseconds)
        var byte: UInt8 = 0
        return recv(socket, &byte, 1, Int32(MSG_DONTWAIT)) < 0 && errno == EAGAIN
    }

    static func connected(_ address: String, _ port: Int) -> Int32? {
        let socket = Glibc.socket(AF_INET, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue) | Int32(SOCK_NONBLOCK.rawValue), 0)
        var place = sockaddr_in()
        place.sin_family = sa_family_t(AF_INET)
        place.sin_port = in_port_t(UInt16(port).bigEndian)
        inet_pton(AF_INET, address, &place.sin_addr)
        let result = withUnsafePointer(to: &place) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) { connect(socket, $0, socklen_t(MemoryLayout<sockaddr_in>.size)) }
        }
        if result == 0 || errno == EINPROGRESS { return socket }
        close(socket)
        return nil
    }

    /// An address of this machine that others know it by.
    static let address: String? = {
        var first: UnsafeMutablePointer<ifaddrs>?
        guard getifaddrs(&first) == 0 else { return nil }
        defer { freeifaddrs(first) }
        for item in sequence(first: first, next: { $0?.pointee.ifa_next }) {
            guard let item, let address = item.pointee.ifa_addr, address.pointee.sa_family == sa_family_t(AF_INET) else { continue }
            var text = [CChar](repeating: 0, count: 64)
            getnameinfo(address, socklen_t(MemoryLayout<sockaddr_in>.size), &text, 64, nil, 0, NI_NUMERICHOST)
            let name = String(decoding: text.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
            if !name.hasPrefix("127.") { return name }
        }
        return nil
    }()

    static func withAddress<Result>(_ text: String, _ body: (UnsafePointer<sockaddr>) throws -> Result) throws -> Result {
        var hints = addrinfo()
        hints.ai_flags = AI_NUMERICHOST
        var found: UnsafeMutablePointer<addrinfo>?
        guard getaddrinfo(text, nil, &hints, &found) == 0, let address = found?.pointee.ai_addr else {
            throw TestFailure("no address: \(text)")
        }
        defer { freeaddrinfo(found) }
        return try body(address)
    }
}
