import Foundation
import Glibc
import TestSupport
import Testing

extension FleetTests {
    @Suite struct TheFence {
        @Test("shuts what the fleet granted on a host of which the agent stands still, and only then it is called fenced")
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
            // On a machine that stood still its lease may be gone by now.
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

        @Test(
            "loses nothing that a write had acknowledged, and opens again by itself when etcd is back", arguments: ["shared", "exclusive"])
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
            // Refused is who comes new; what was acknowledged before is on its way.
            try fleet.files.wait(until: "all that was acknowledged is in the file") {
                try Data(contentsOf: URL(fileURLWithPath: source + "/written")).count == count * line.count
            }
            #expect(FleetFixture.reading(place + "/x/file") == EACCES)
            try fleet.servers.start(fleet.servers.members[0])
            try fleet.awaitReading(place + "/x/file", 0)
            #expect(FleetFixture.reading(file) == EACCES)
        }

        @Test("stands before a mount that is made, or upgraded, while nobody says that the fleet's grants are valid")
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

        @Test("is not opened by an etcd that was restored from a backup, until somebody begins the fleet again")
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
