import GrantFleet
import Foundation
import Glibc
import TestSupport
import Testing

extension GrantFleetTests {
    @Suite struct TheFence {
        @Test("The fence closes the fleet's grants on a host whose agent is stopped")
        func stoppedAgent() throws {
            let fleet = try FleetFixture(hosts: ["h1", "h2"])
            let mounts = try ["h1", "h2"].map { try fleet.mount($0) }
            let own = try fleet.source("own")
            try fleet.on("h2", "grant", own, "--view", "v").orThrow()
            try fleet.administer("grant", "--fleet", try fleet.source(), "--view", "v", "--name", "x").orThrow()
            for mount in mounts { try fleet.awaitReading(mount + "/x/file", 0) }
            let (held, local) = (open(mounts[1] + "/x/file", O_RDONLY), open(mounts[1] + "/own/file", O_RDONLY))
            defer {
                close(held)
                close(local)
            }
            fleet.signalAgent("h2", SIGSTOP)
            let soon = try fleet.administer("revoke", "--fleet", "x", "--timeout", "0.2", "--json")
            let first = try soon.decoded(as: [FleetRevocation].self)[0]
            #expect(soon.status == 3 && first.state("h1") == "confirmed", "\(soon)")
            // On a machine that was suspended its lease may have ended.
            let host = try #require(first.hosts.first { $0.host == "h2" })
            if host.state == "waiting" {
                #expect(host.until != nil && soon.errors.contains("“h2” has not confirmed it"))
            }
            let last = try fleet.administer("revoke", "--fleet", "x", "--timeout", "60", "--json").orThrow().decoded(
                as: [FleetRevocation].self)[0]
            #expect(last.state("h2") == "fenced")
            #expect(FleetFixture.reading(mounts[1] + "/x/file") == EACCES)
            #expect(FleetFixture.reading(held) == EACCES)
            #expect(FleetFixture.reading(local) == 0, "what was granted on the host itself goes on")

            fleet.signalAgent("h2", SIGCONT)
            try fleet.administer("restore", "--fleet", "x").orThrow()
            try fleet.awaitReading(mounts[1] + "/x/file", 0)
            #expect(FleetFixture.reading(held) == EACCES, "a fresh scope")
        }

        @Test("A host is not reported as fenced before its lease has ended")
        func lastSecond() throws {
            let fleet = try FleetFixture(hosts: ["h1"])
            try fleet.administer("grant", "--fleet", try fleet.source(), "--view", "v", "--name", "x").orThrow()
            let client = try EtcdClient(try FleetCredentials(file: fleet.store("administrator") + "/fleet/administrator.json").settings)
            fleet.killAgent("h1")
            try fleet.files.wait(until: "the host is called fenced", within: 60) {
                let output = try fleet.administer("revoke", "--fleet", "x", "--timeout", "0.05", "--json")
                let isFenced = try output.decoded(as: [FleetRevocation].self)[0].state("h1") == "fenced"
                if isFenced { #expect(try client.read("grantfs/hosts/h1/agent").entry == nil, "\(output)") }
                return isFenced
            }
        }

        @Test("A deposed etcd leader that grants or renews leases does not keep the fence open", arguments: ["granting", "renewing"])
        func staleLeader(fault: String) throws {
            let fleet = try FleetFixture(hosts: [])
            let mount = fleet.files.base + "/m"
            try fleet.invite("h1")
            try fleet.administer("grant", "--fleet", try fleet.source(), "--view", "v", "--name", "x").orThrow()
            let port = try fleet.divert("h1")
            let between = try fleet.between(port, fault)
            defer { between.kill() }
            try fleet.startAgent("h1")
            mkdir(mount, 0o755)
            try fleet.on("h1", "mount", "--new", "v", mount).orThrow()
            try fleet.files.wait(until: "the agent says so: \(fleet.said("h1"))", within: 60) {
                fleet.said("h1").contains("another member of etcd leads now")
            }
            pause(milliseconds: 2_000)
            #expect([EACCES, ENOENT].contains(FleetFixture.reading(mount + "/x/file")))
            between.kill()
            let honest = try fleet.between(port, "honest")
            defer { honest.kill() }
            try fleet.awaitReading(mount + "/x/file", 0)
        }

        @Test("An agent that gets no answer when it takes a lease keeps that lease")
        func unansweredLease() throws {
            let fleet = try FleetFixture(hosts: [], lease: "60s")
            try fleet.invite("h1")
            let between = try fleet.between(try fleet.divert("h1"), "lossy")
            defer { between.kill() }
            try fleet.startAgent("h1")
            try fleet.awaitLive(["h1"])
            #expect(fleet.said("h1").contains("are not renewed"), "an answer was lost")
            #expect(!fleet.said("h1").contains("another agent has the lease"), "\(fleet.said("h1"))")
        }

        @Test("A host exchanges its lease after an election, so that the previous leader cannot end it")
        func exchangedLease() throws {
            let fleet = try FleetFixture(hosts: ["h1"], lease: "20s")
            let mount = try fleet.mount("h1")
            try fleet.administer("grant", "--fleet", try fleet.source(), "--view", "v", "--name", "x").orThrow()
            try fleet.awaitReading(mount + "/x/file", 0)
            let held = open(mount + "/x/file", O_RDONLY)
            defer { close(held) }
            let settings = try FleetCredentials(file: fleet.store("administrator") + "/fleet/administrator.json").settings
            let client = try EtcdClient(settings)
            let keys = ["agent", "alive", "state"].map { "grantfs/hosts/h1/" + $0 }
            let before = try #require(try client.read(keys[0]).entry)
            let member = fleet.servers.members[0]
            fleet.servers.kill(member)
            try fleet.servers.start(member)
            try fleet.servers.awaitAnswer(of: member)
            try fleet.files.wait(until: "all that the host has written belongs to another lease", within: 30) {
                guard let client = try? EtcdClient(settings) else { return false }
                return keys.allSatisfy { key in ((try? client.read(key).entry?.lease) ?? before.lease) != before.lease }
            }
            // A request of the agent that arrives late finds another value, so it does not give the key back to the old lease.
            let after = try EtcdClient(settings)
            #expect(
                try !after.transaction([.value(keys[0], before.value)], then: [.put(keys[0], before.value, lease: before.lease)]).succeeded)
            // What a leader does that was replaced and does not know, here without its delay.
            try after.revokeLease(before.lease)
            let revoked = try fleet.administer("revoke", "--fleet", "x", "--json").orThrow().decoded(as: [FleetRevocation].self)
            #expect(revoked[0].state("h1") == "confirmed" && FleetFixture.reading(held) == EACCES)
            #expect(!fleet.said("h1").contains("the lease is gone"), "\(fleet.said("h1"))")
        }

        @Test(
            "The fence loses no acknowledged write and opens again when etcd is back", arguments: ["shared", "exclusive"])
        func etcdStops(cache: String) throws {
            let fleet = try FleetFixture(hosts: ["h1"])
            let source = try fleet.source()
            try fleet.administer("grant", "--fleet", source, "--view", "v", "--name", "x").orThrow()
            let place = fleet.files.base + "/m"
            mkdir(place, 0o755)
            try fleet.on("h1", "mount", "v", place, "-o", "cache=\(cache)").orThrow()
            try fleet.awaitReading(place + "/x/file", 0)
            let file = open(place + "/x/written", O_RDWR | O_CREAT, 0o600)
            #expect(file >= 0)
            defer { close(file) }
            fleet.servers.kill(fleet.servers.members[0])
            var count = 0
            let line = Array("line\n".utf8)
            try fleet.files.wait(until: "writing is refused", within: 60) {
                for _ in 0..<50 {
                    if write(file, line, line.count) != line.count { return errno == EACCES }
                    count += 1
                }
                return false
            }
            #expect(count > 0)
            // New callers are refused. Acknowledged writes are still in progress.
            try fleet.files.wait(until: "all that was acknowledged is in the file") {
                try Data(contentsOf: URL(fileURLWithPath: source + "/written")).count == count * line.count
            }
            #expect(FleetFixture.reading(place + "/x/file") == EACCES)
            try fleet.servers.start(fleet.servers.members[0])
            try fleet.awaitReading(place + "/x/file", 0)
            #expect(FleetFixture.reading(file) == EACCES)
        }

        @Test("The fence covers new and upgraded mounts until the fleet's grants are valid")
        func newMounts() throws {
            let fleet = try FleetFixture(hosts: ["h1"])
            try fleet.administer("grant", "--fleet", try fleet.source(), "--view", "v", "--name", "x").orThrow()
            let early = try fleet.mount("h1")
            try fleet.awaitReading(early + "/x/file", 0)
            try fleet.on("h1", "upgrade", early).orThrow()
            #expect(FleetFixture.reading(early + "/x/file") == 0, "the next daemon knows that they are valid")
            fleet.killAgent("h1")
            try fleet.awaitReading(early + "/x/file", EACCES)
            let late = fleet.files.base + "/late"
            mkdir(late, 0o755)
            try fleet.on("h1", "mount", "v", late).orThrow()
            #expect(FleetFixture.reading(late + "/x/file") == EACCES)
            try fleet.on("h1", "upgrade", early).orThrow()
            #expect(FleetFixture.reading(early + "/x/file") == EACCES)
            try fleet.startAgent("h1")
            for mount in [early, late] { try fleet.awaitReading(mount + "/x/file", 0) }
        }

        @Test("An etcd restored from a backup does not open the fence")
        func backup() throws {
            let fleet = try FleetFixture(hosts: ["h1"])
            let mount = try fleet.mount("h1")
            try fleet.administer("grant", "--fleet", try fleet.source(), "--view", "v", "--name", "x").orThrow()
            try fleet.administer("grant", "--fleet", try fleet.source("y"), "--view", "v", "--name", "y").orThrow()
            try fleet.awaitReading(mount + "/x/file", 0)
            let member = fleet.servers.members[0]
            let saved = fleet.files.base + "/saved.db"
            try fleet.servers.etcdctl("snapshot", "save", saved, endpoint: member, user: try fleet.rootOfEtcd()).orThrow()
            try fleet.administer("revoke", "--fleet", "x").orThrow()
            // What the host has seen by then it has written down.
            let seen = try #require(try fleet.host("h1")).revision
            try fleet.files.wait(until: "the host remembers it") {
                let text = (try? String(contentsOfFile: fleet.store("h1") + "/fleet/agent.json", encoding: .utf8)) ?? ""
                struct State: Decodable { let revision: Int64 }
                return ((try? JSONDecoder().decode(State.self, from: Data(text.utf8)))?.revision ?? 0) >= seen
            }
            fleet.servers.kill(member)
            try Command.shell(
                "rm -rf \"$1\" && ETCDCTL_API=3 etcdctl snapshot restore \"$2\" --name m0 --data-dir \"$1\" "
                    + "--initial-cluster \"m0=$3\" --initial-advertise-peer-urls \"$3\"", member.data, saved, fleet.servers.peer(of: member)
            ).orThrow()
            try fleet.servers.start(member)
            try fleet.servers.awaitAnswer(of: member)
            try fleet.files.wait(until: "the host says that etcd is behind: \(fleet.said("h1"))", within: 30) {
                fleet.said("h1").contains("restored from a backup")
            }
            for name in ["x", "y"] { try fleet.awaitReading("\(mount)/\(name)/file", EACCES) }
            try fleet.administer("fleet", "init", "--again").orThrow()
            try fleet.administer("restore", "--fleet", "y").orThrow()
            try fleet.awaitReading(mount + "/y/file", 0)
            #expect(FleetFixture.reading(mount + "/x/file") == EACCES, "what was withdrawn after the backup does not come back")
        }
    }
}

extension FleetFixture {
    /// Makes a host, which has no agent yet, connect to another port. Returns the port.
    fileprivate func divert(_ host: String) throws -> UInt16 {
        let (socket, port) = try EtcdServers.listening(backlog: nil)
        close(socket)
        let file = store(host) + "/fleet/host.json"
        let text = try String(contentsOfFile: file, encoding: .utf8)
        try text.replacingOccurrences(of: servers.list, with: "http://127.0.0.1:\(port)").write(
            toFile: file, atomically: false, encoding: .utf8)
        return UInt16(port)
    }

    /// A proxy between the host and etcd. `granting`: it reports that the lease was granted in the previous term. `renewing`: that it
    /// was taken and renewed then, but not what is written afterwards. `lossy`: it loses the first four answers to an agent that takes a lease.
    fileprivate func between(_ port: UInt16, _ fault: String) throws -> Child {
        let code = """
            import http.server, re, sys, urllib.error, urllib.request
            lost = []
            class Between(http.server.BaseHTTPRequestHandler):
                def do_POST(self):
                    body = self.rfile.read(int(self.headers['Content-Length']))
                    headers = {name: self.headers[name] for name in ('Authorization',) if self.headers[name]}
                    try:
                        answer = urllib.request.urlopen(urllib.request.Request(sys.argv[2] + self.path, body, headers), timeout=2)
                        status, text = answer.status, answer.read()
                    except urllib.error.HTTPError as error:
                        status, text = error.code, error.read()
                    except OSError:
                        return
                    takesLease = body.count(b'request_put') == 2
                    if takesLease and sys.argv[3] == 'lossy' and len(lost) < 4:
                        lost.append(body)
                        return
                    isRenewal = self.path.endswith('keepalive')
                    isFirst = isRenewal and re.search(rb'"ID": *"0"', body)
                    if (isFirst and sys.argv[3] == 'granting') or ((takesLease or isRenewal) and sys.argv[3] == 'renewing'):
                        text = re.sub(rb'"raft_term":"\\d+"', b'"raft_term":"1"', text)
                    self.send_response(status)
                    self.send_header('Content-Length', str(len(text)))
                    self.end_headers()
                    self.wfile.write(text)
                def log_message(self, *words): pass
            http.server.ThreadingHTTPServer(('127.0.0.1', int(sys.argv[1])), Between).serve_forever()
            """
        return try Child(["python3", "-c", code, "\(port)", servers.list, fault])
    }
}
