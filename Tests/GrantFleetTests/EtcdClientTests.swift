import GrantFleet
import Foundation
import GrantModel
import GrantSystem
import TestSupport
import Testing

/// What speaks to etcd, on a real one.
@Suite(.enabled(if: EtcdServers.isInstalled, "\(EtcdServers.isMissing)"))
struct AnEtcdClient {
    private static func failure(_ body: () throws(EtcdFailure) -> Void) -> EtcdFailure? {
        do throws(EtcdFailure) { try body() } catch { return error }
        return nil
    }

    @Test("Of two concurrent changes of one etcd key, one wins")
    func comparing() throws {
        let scratch = try MountFixture()
        let servers = try EtcdServers(in: scratch.base)
        let settings = EtcdSettings(endpoints: servers.endpoints)
        let clients = [try EtcdClient(settings), try EtcdClient(settings)]
        let seen = try clients.map { try $0.read("key").entry?.modified ?? 0 }
        #expect(try clients[0].transaction([.modified("key", seen[0])], then: [.put("key", [1])]).succeeded)
        let second = try clients[1].transaction([.modified("key", seen[1])], then: [.put("key", [2])], otherwise: [.read("key")])
        #expect(!second.succeeded && second.found.first?.first?.value == [1])

        // The loser tries again, so none of a hundred is lost.
        DispatchQueue.concurrentPerform(iterations: 4) { _ in
            do {
                let client = try EtcdClient(settings)
                for _ in 0..<25 {
                    while true {
                        let (entry, _) = try client.read("counter")
                        let next = (entry.flatMap { Int(String(decoding: $0.value, as: UTF8.self)) } ?? 0) + 1
                        let answer = try client.transaction(
                            [.modified("counter", entry?.modified ?? 0)], then: [.put("counter", Array("\(next)".utf8))])
                        if answer.succeeded { break }
                    }
                }
            } catch {
                Issue.record(error)
            }
        }
        #expect(try EtcdClient(settings).read("counter").entry?.value == Array("100".utf8))
    }

    @Test("A patient client waits for an etcd that starts later")
    func patience() throws {
        let scratch = try MountFixture()
        let servers = try EtcdServers(in: scratch.base)
        let client = try EtcdClient(EtcdSettings(endpoints: servers.endpoints))
        servers.kill(servers.members[0])
        client.endRequests(at: Clock.monotonic + 1_000_000_000)
        #expect(Self.failure { () throws(EtcdFailure) in _ = try client.read("key") }?.isSilence == true)
        client.endRequests(at: Clock.monotonic + 60_000_000_000, isPatient: true)
        let found = Lock<Bool?>(nil)
        let thread = Thread {
            let isRead = (try? client.read("key")) != nil
            found.withLock { $0 = isRead }
        }
        thread.start()
        // By then the first attempts have failed.
        pause(milliseconds: 500)
        #expect(found.withLock { $0 } == nil)
        try servers.start(servers.members[0])
        try scratch.wait(until: "the client has its answer") { found.withLock { $0 } == true }
    }

    @Test("An etcd watch continues after its last event when the server was killed")
    func watching() throws {
        let scratch = try MountFixture()
        let servers = try EtcdServers(in: scratch.base)
        let client = try EtcdClient(EtcdSettings(endpoints: servers.endpoints))
        let writer = try EtcdClient(EtcdSettings(endpoints: servers.endpoints))
        let start = try writer.transaction(then: [.put("watched/0", [])]).revision
        for number in 1...3 { _ = try writer.transaction(then: [.put("watched/\(number)", [])]) }
        var (seen, next): ([String], Int64) = ([], start)
        try client.watch("watched/", from: next, milliseconds: 20_000) { events in
            seen += events.puts.map(\.key)
            next = events.revision + 1
            return seen.count < 4
        }
        servers.kill(servers.members[0])
        let broken = Self.failure { () throws(EtcdFailure) in try client.watch("watched/", from: next, milliseconds: 20_000) { _ in true } }
        guard case .unreachable? = broken else { throw TestFailure("a watch of nobody: \(String(describing: broken))") }
        try servers.start(servers.members[0])
        try servers.awaitAnswer(of: servers.members[0])
        for number in 4...6 { _ = try writer.transaction(then: [.put("watched/\(number)", [])]) }
        _ = try writer.transaction(then: [.delete("watched/0")])
        var deleted: [String] = []
        try client.watch("watched/", from: next, milliseconds: 20_000) { events in
            seen += events.puts.map(\.key)
            deleted += events.deletes
            return deleted.isEmpty
        }
        #expect(seen == (0...6).map { "watched/\($0)" })
        #expect(deleted == ["watched/0"])
    }

    @Test("An etcd watch from a compacted revision fails with the revision to start from")
    func compaction() throws {
        let scratch = try MountFixture()
        let servers = try EtcdServers(in: scratch.base)
        let client = try EtcdClient(EtcdSettings(endpoints: servers.endpoints))
        for number in 1...10 { _ = try client.transaction(then: [.put("watched/\(number)", [])]) }
        let revision = try client.read("watched/1").revision
        try servers.etcdctl("compact", "\(revision)").orThrow()
        let failure = Self.failure { () throws(EtcdFailure) in try client.watch("watched/", from: 2, milliseconds: 20_000) { _ in true } }
        #expect(failure == .compacted(revision))
    }

    @Test("An endpoint that answers slowly is given up like a silent one")
    func dripping() throws {
        let scratch = try MountFixture()
        let servers = try EtcdServers(in: scratch.base)
        let (socket, port) = try EtcdServers.listening(backlog: nil)
        close(socket)
        let code = """
            import socket, sys, time
            server = socket.create_server(('127.0.0.1', int(sys.argv[1])))
            while True:
                client, _ = server.accept()
                try:
                    client.sendall(b'HTTP/1.1 200 OK\\r\\nContent-Length: 1000\\r\\n\\r\\n{')
                    while True:
                        client.sendall(b' ')
                        time.sleep(0.1)
                except OSError:
                    pass
            """
        let slow = try Child(["python3", "-c", code, "\(port)"])
        defer { slow.kill() }
        try scratch.wait(until: "the slow server listens") {
            (try? Command.run(["python3", "-c", "import socket; socket.create_connection(('127.0.0.1', \(port)))"]))?.status == 0
        }
        let client = try EtcdClient(EtcdSettings(endpoints: ["http://127.0.0.1:\(port)"] + servers.endpoints), timeout: 500)
        let start = Machine.milliseconds
        #expect(try client.transaction(then: [.put("a", [1])]).succeeded)
        // It would take 100 s to hear it out.
        #expect(Machine.milliseconds - start < 50_000)
    }

    @Test("The etcd client asks the next endpoint if one is dead, silent or not etcd")
    func failingOver() throws {
        let scratch = try MountFixture()
        let servers = try EtcdServers(in: scratch.base)
        let silent = try EtcdServers.listening(backlog: 16)
        defer { close(silent.socket) }
        let web = try EtcdServers.listening(backlog: nil)
        close(web.socket)
        let server = try Child(["python3", "-m", "http.server", "--bind", "127.0.0.1", "\(web.port)"])
        defer { server.kill() }
        try scratch.wait(until: "the web server answers") {
            (try? Command.run(["python3", "-c", "import socket; socket.create_connection(('127.0.0.1', \(web.port)))"]))?.status == 0
        }
        let wrong = ["http://127.0.0.1:1", "http://127.0.0.1:\(silent.port)", "http://127.0.0.1:\(web.port)"]
        let client = try EtcdClient(EtcdSettings(endpoints: wrong + servers.endpoints), timeout: 500)
        #expect(try client.transaction(then: [.put("a", [1])]).succeeded)
        #expect(try client.read("a").entry?.value == [1])

        for endpoint in wrong {
            let failure = Self.failure { () throws(EtcdFailure) in
                guard let client = try? EtcdClient(EtcdSettings(endpoints: [endpoint]), timeout: 500) else { return }
                _ = try client.read("a")
            }
            switch failure {
            case .unreachable(let text)?: #expect(text.contains(endpoint) && endpoint == wrong[0])
            case .unanswered(let text)?: #expect(text.contains(endpoint) && endpoint == wrong[1])
            case .invalidResponse(let named, _)?: #expect(named == endpoint && endpoint.hasSuffix("\(web.port)"))
            default: Issue.record("\(endpoint): \(String(describing: failure))")
            }
        }
    }

    @Test("The etcd client moves a silent watch to the next endpoint")
    func silentWatch() throws {
        let scratch = try MountFixture()
        let servers = try EtcdServers(in: scratch.base)
        let silent = try EtcdServers.listening(backlog: 16)
        defer { close(silent.socket) }
        let client = try EtcdClient(EtcdSettings(endpoints: ["http://127.0.0.1:\(silent.port)"] + servers.endpoints), timeout: 500)
        let failure = Self.failure { () throws(EtcdFailure) in try client.watch("watched/", from: 1, milliseconds: 60_000) { _ in true } }
        guard case .unanswered? = failure else { throw TestFailure("a silent server: \(String(describing: failure))") }
        let writer = try EtcdClient(EtcdSettings(endpoints: servers.endpoints))
        _ = try writer.transaction(then: [.put("watched/1", [])])
        var seen: [String] = []
        try client.watch("watched/", from: 1, milliseconds: 60_000) { events in
            seen += events.puts.map(\.key)
            return seen.isEmpty
        }
        #expect(seen == ["watched/1"])
    }

    @Test("The etcd client trusts only servers that its authority has signed")
    func certificates() throws {
        let scratch = try MountFixture()
        let servers = try EtcdServers(in: scratch.base, .certificates)
        let text = { (name: String) in try String(contentsOfFile: servers.directory + "/" + name, encoding: .utf8) }
        let good = EtcdSettings(
            endpoints: servers.endpoints, authorities: try text("ca.pem"), certificate: try text("client.pem"), key: try text("client.key"))
        #expect(try EtcdClient(good).transaction(then: [.put("a", [])]).succeeded)

        var stranger = good
        stranger.authorities = try text("other.pem")
        let one = try EtcdClient(stranger)
        guard case .untrustedServer? = Self.failure({ () throws(EtcdFailure) in _ = try one.read("a") }) else {
            throw TestFailure("an unknown authority is trusted")
        }
        var nobody = good
        (nobody.certificate, nobody.key) = (nil, nil)
        let two = try EtcdClient(nobody)
        let refusal = Self.failure { () throws(EtcdFailure) in _ = try two.read("a") }
        guard case .clientCertificate? = refusal else { throw TestFailure("without a certificate: \(String(describing: refusal))") }
        var forged = good
        (forged.certificate, forged.key) = (try text("other.pem"), try text("other.key"))
        let three = try EtcdClient(forged)
        let other = Self.failure { () throws(EtcdFailure) in _ = try three.read("a") }
        guard case .clientCertificate? = other else {
            throw TestFailure("with a certificate of another authority: \(String(describing: other))")
        }
    }

    @Test("The etcd client logs in again when its token is invalid")
    func passwords() throws {
        let scratch = try MountFixture()
        let servers = try EtcdServers(in: scratch.base)
        try servers.etcdctl("user", "add", "root:secret").orThrow()
        try servers.etcdctl("user", "grant-role", "root", "root").orThrow()
        try servers.etcdctl("auth", "enable").orThrow()
        let client = try EtcdClient(EtcdSettings(endpoints: servers.endpoints, user: "root", password: "secret"))
        #expect(try client.transaction(then: [.put("a", [])]).succeeded)
        // Tokens are kept in memory.
        servers.kill(servers.members[0])
        try servers.start(servers.members[0])
        try servers.awaitAnswer(of: servers.members[0])
        #expect(try client.read("a").entry != nil)
        let wrong = try EtcdClient(EtcdSettings(endpoints: servers.endpoints, user: "root", password: "guess"))
        #expect(Self.failure { () throws(EtcdFailure) in _ = try wrong.read("a") } == .refusedLogin(user: "root"))
        let nobody = try EtcdClient(EtcdSettings(endpoints: servers.endpoints))
        #expect(Self.failure { () throws(EtcdFailure) in _ = try nobody.read("a") } == .needsLogin)
    }

    @Test("The etcd client renews leases and reports an expired lease")
    func leases() throws {
        let scratch = try MountFixture()
        let servers = try EtcdServers(in: scratch.base)
        let client = try EtcdClient(EtcdSettings(endpoints: servers.endpoints))
        let seconds = try client.grantLease(4711, seconds: 60)
        #expect(seconds >= 60)
        // As after an answer that was lost.
        #expect(try client.grantLease(4711, seconds: 60) >= 60)
        _ = try client.transaction(then: [.put("leased", [], lease: 4711)])
        #expect(try client.renewLease(4711).seconds >= 60)
        #expect(try client.timeLeft(ofLease: 4711) > 0)
        try client.revokeLease(4711)
        #expect(try client.read("leased").entry == nil)
        #expect(Self.failure { () throws(EtcdFailure) in _ = try client.renewLease(4711) } == .noSuchLease)
        #expect(Self.failure { () throws(EtcdFailure) in _ = try client.timeLeft(ofLease: 4711) } == .noSuchLease)
        // A lease of less than a second still exists.
        _ = try client.grantLease(4712, seconds: 2)
        var seen: [Int64] = []
        try scratch.wait(until: "the lease has ended", within: 30) {
            guard let left = try? client.timeLeft(ofLease: 4712) else { return true }
            seen.append(left)
            return false
        }
        #expect(seen.contains(0), "\(seen)")
    }
}
