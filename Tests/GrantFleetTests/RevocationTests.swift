import GrantFleet
import Foundation
import Glibc
import TestSupport
import Testing

extension GrantFleetTests {
    @Suite struct AGrantOfTheFleet {
        @Test("A fleet grant opens on each of its hosts and is revoked on all of them")
        func everywhere() throws {
            let fleet = try FleetFixture(hosts: ["h1", "h2", "h3"])
            let source = try fleet.source()
            let mounts = try ["h1", "h2", "h3"].map { try fleet.mount($0) }
            let id = try fleet.administer("grant", "--fleet", source, "--view", "v", "--name", "x", "--hosts", "role=build,zone!=h3")
                .orThrow().trimmed
            for mount in mounts[..<2] { try fleet.awaitReading(mount + "/x/file", 0) }
            #expect(FleetFixture.reading(mounts[2] + "/x/file") == ENOENT, "the host that it is not for")
            let held = mounts[..<2].map { open($0 + "/x/file", O_RDONLY) }
            defer { held.forEach { close($0) } }
            #expect(held.allSatisfy { FleetFixture.reading($0) == 0 })

            let output = try fleet.administer("revoke", "--fleet", "x", "--json").orThrow()
            let revoked = try output.decoded(as: [FleetRevocation].self)
            #expect(revoked.count == 1 && revoked[0].id == id)
            #expect(Set(revoked[0].hosts.map(\.host)) == ["h1", "h2"])
            #expect(revoked[0].hosts.allSatisfy { $0.state == "confirmed" })
            for mount in mounts[..<2] { #expect(FleetFixture.reading(mount + "/x/file") == EACCES) }
            for file in held { #expect(FleetFixture.reading(file) == EACCES) }

            try fleet.administer("restore", "--fleet", "x").orThrow()
            for mount in mounts[..<2] { try fleet.awaitReading(mount + "/x/file", 0) }
            for file in held { #expect(FleetFixture.reading(file) == EACCES, "what was open before stays refused") }

            let set = try fleet.administer("set", "--fleet", "x", "--access", "read-only", "--json").orThrow()
            #expect(try set.decoded(as: FleetRevocation.self).hosts.count == 2)
            #expect(open(mounts[0] + "/x/new", O_WRONLY | O_CREAT, 0o600) < 0 && errno == EROFS)
            try fleet.administer("remove", "--fleet", "x").orThrow()
            try fleet.awaitReading(mounts[0] + "/x/file", ENOENT)
            #expect(try fleet.administer("revoke", "--fleet", "x").status == 1, "it is forgotten")
        }

        @Test("A fleet grant that a host's policy forbids opens on other hosts only")
        func policyOfAHost() throws {
            let fleet = try FleetFixture(hosts: ["h1", "h2"])
            let machine = try PolicyMachine()
            let source = try fleet.source()
            try machine.write("never = [\"\(source)\"]\n")
            fleet.killAgent("h1")
            try fleet.startAgent("h1", prelude: machine.command([]).filter { !$0.hasPrefix("GRANTFS_STORE=") })
            try fleet.awaitLive(["h1", "h2"])
            let mounts = try ["h1", "h2"].map { try fleet.mount($0) }
            let id = try fleet.administer("grant", "--fleet", source, "--view", "v", "--name", "x").orThrow().trimmed
            try fleet.awaitReading(mounts[1] + "/x/file", 0)
            try fleet.files.wait(until: "the host says why") { try fleet.host("h1")?.problems[id] != nil }
            let problem = try fleet.host("h1")?.problems[id] ?? ""
            #expect(problem.contains("never granted"), "\(problem)")
            #expect(FleetFixture.reading(mounts[0] + "/x/file") != 0)
        }

        @Test("Of several concurrent fleet grants with one name, exactly one is made")
        func races() throws {
            let fleet = try FleetFixture(hosts: [])
            let source = try fleet.source()
            let (statuses, store) = (Locked<[Int32]>([]), fleet.store("administrator"))
            let run: @Sendable ([String]) -> Void = { words in
                statuses.add((try? Command.run([Programs.grantfs] + words, environment: ["GRANTFS_STORE": store]).status) ?? -1)
            }
            DispatchQueue.concurrentPerform(iterations: 6) { _ in run(["grant", "--fleet", source, "--name", "x", "--expires", "1h"]) }
            #expect(statuses.value.count { $0 == 0 } == 1)
            #expect(statuses.value.count { $0 == 1 } == 5, "\(statuses.value)")
            // A revocation and changes of the same grant at the same time: none is lost.
            DispatchQueue.concurrentPerform(iterations: 4) { number in
                run(number == 0 ? ["revoke", "--fleet", "x"] : ["set", "--fleet", "x", "--expires", "\(number + 1)h"])
            }
            #expect(statuses.value.suffix(4).allSatisfy { $0 == 0 })
            let listed = try fleet.administer("list", "--fleet", "--all", "--json").orThrow().text
            #expect(listed.contains("\"state\":\"revoked\""), "\(listed)")
        }

        @Test("A dry run of a fleet grant lists its hosts and changes nothing")
        func dryRun() throws {
            let fleet = try FleetFixture(hosts: ["h1", "h2"])
            let source = try fleet.source()
            let preview = try fleet.administer("grant", "--fleet", source, "--name", "x", "--hosts", "host=h2", "--dry-run").orThrow()
            #expect(preview.text.contains("would grant x") && preview.text.contains("on h2\n"), "\(preview)")
            #expect(try fleet.administer("list", "--fleet", "--all", "--json").orThrow().trimmed == "[]")
        }

        @Test("A revocation prevails over a restoration that began earlier")
        func lateRestoration() throws {
            let fleet = try FleetFixture(hosts: ["h1"])
            let mount = try fleet.mount("h1")
            let id = try fleet.administer("grant", "--fleet", try fleet.source(), "--view", "v", "--name", "x").orThrow().trimmed
            try fleet.awaitReading(mount + "/x/file", 0)
            try fleet.administer("revoke", "--fleet", "x").orThrow()
            let client = try EtcdClient(try FleetCredentials(file: fleet.store("administrator") + "/fleet/administrator.json").settings)
            let key = "grantfs/grants/all/\(id)"
            let seen = try #require(try client.read(key).entry)
            let restored = String(decoding: seen.value, as: UTF8.self).replacingOccurrences(
                of: "\"state\":\"revoked\"", with: "\"state\":\"active\"")
            try fleet.administer("revoke", "--fleet", "x").orThrow()
            // What a command that was killed has left on its way.
            let late = try client.transaction(
                [.modified(key, seen.modified)], then: [.put(key, Array(restored.utf8)), .put("grantfs/bell", [])])
            #expect(!late.succeeded)
            #expect(FleetFixture.reading(mount + "/x/file") == EACCES)
        }

        @Test("A descriptor opened before a missed revocation is refused after the restoration")
        func missedRevocation() throws {
            let fleet = try FleetFixture(hosts: ["h1"], lease: "60s")
            let mount = try fleet.mount("h1")
            try fleet.administer("grant", "--fleet", try fleet.source(), "--view", "v", "--name", "x").orThrow()
            try fleet.awaitReading(mount + "/x/file", 0)
            let held = open(mount + "/x/file", O_RDONLY)
            defer { close(held) }
            #expect(FleetFixture.reading(held) == 0)
            fleet.signalAgent("h1", SIGSTOP)
            #expect(try fleet.administer("revoke", "--fleet", "x", "--timeout", "0.2").status == 3)
            #expect(try fleet.administer("restore", "--fleet", "x", "--timeout", "0.2").status == 3)
            #expect(FleetFixture.reading(held) == 0, "it has heard of neither")
            fleet.signalAgent("h1", SIGCONT)
            try fleet.files.wait(until: "what was open before is refused") { FleetFixture.reading(held) == EACCES }
            try fleet.awaitReading(mount + "/x/file", 0)
        }

        @Test("A revocation succeeds after the leader of etcd has died")
        func memberDies() throws {
            let fleet = try FleetFixture(hosts: ["h1"], members: 3, lease: "20s")
            let mount = try fleet.mount("h1")
            try fleet.administer("grant", "--fleet", try fleet.source(), "--view", "v", "--name", "x").orThrow()
            try fleet.awaitReading(mount + "/x/file", 0)
            struct Status: Decodable {
                struct Member: Decodable {
                    let endpoint: String
                    let leads: Bool
                }
                let members: [Member]
            }
            let status = try fleet.administer("fleet", "status", "--json").orThrow().decoded(as: Status.self)
            let leader = try #require(status.members.first { $0.leads })
            fleet.servers.kill(try #require(fleet.servers.members.first { leader.endpoint.hasSuffix(":\($0.client)") }))
            // Until there is a new leader no change can be recorded, and the command reports that.
            try fleet.files.wait(until: "the revocation is confirmed", within: 60) {
                try fleet.administer("revoke", "--fleet", "x").status == 0
            }
            #expect(FleetFixture.reading(mount + "/x/file") == EACCES)
            #expect(try fleet.administer("fleet", "status").status == 1, "a member is missing")
        }
    }

    @Suite struct AnAgent {
        @Test("A killed agent keeps its lease and its grants stay open")
        func killed() throws {
            let fleet = try FleetFixture(hosts: ["h1"], lease: "30s")
            let mount = try fleet.mount("h1")
            try fleet.administer("grant", "--fleet", try fleet.source(), "--view", "v", "--name", "x").orThrow()
            try fleet.awaitReading(mount + "/x/file", 0)
            let held = open(mount + "/x/file", O_RDONLY)
            defer { close(held) }
            for _ in 0..<3 {
                fleet.killAgent("h1")
                try fleet.startAgent("h1")
                try fleet.awaitLive(["h1"])
                #expect(FleetFixture.reading(held) == 0, "the same scope is open")
            }
            let revoked = try fleet.administer("revoke", "--fleet", "x", "--timeout", "60", "--json").orThrow().decoded(
                as: [FleetRevocation].self)
            #expect(revoked[0].state("h1") == "confirmed")
            #expect(FleetFixture.reading(held) == EACCES)
        }

        @Test("An agent confirms a stored revocation only after its mounts have")
        func killedBetween() throws {
            let fleet = try FleetFixture(hosts: ["h1"], lease: "60s")
            let mount = try fleet.mount("h1")
            let own = fleet.store("h1")
            let id = try fleet.administer("grant", "--fleet", try fleet.source(), "--view", "v", "--name", "x").orThrow().trimmed
            try fleet.awaitReading(mount + "/x/file", 0)
            let daemon = try Self.daemon(fleet)
            kill(daemon, SIGSTOP)
            defer { kill(daemon, SIGCONT) }
            #expect(try fleet.administer("revoke", "--fleet", "x", "--timeout", "0.5").status == 3)
            let isStored = {
                try Command.run([Programs.grantfs, "list", "--all", "--json"], environment: ["GRANTFS_STORE": own]).text.contains(
                    "\"state\":\"revoked\"")
            }
            try fleet.files.wait(until: "the agent has stored the withdrawal") { try isStored() }
            fleet.killAgent("h1")
            try fleet.startAgent("h1")
            try fleet.files.wait(until: "the next agent works") {
                fleet.said("h1").components(separatedBy: "are open on this host").count > 2
            }
            let early = try fleet.administer("revoke", "--fleet", id, "--timeout", "3", "--json")
            #expect(try early.decoded(as: [FleetRevocation].self)[0].state("h1") == "waiting", "\(early)")
            kill(daemon, SIGCONT)
            let late = try fleet.administer("revoke", "--fleet", id, "--timeout", "60", "--json").orThrow().decoded(
                as: [FleetRevocation].self)
            #expect(late[0].state("h1") == "confirmed")
            #expect(FleetFixture.reading(mount + "/x/file") == EACCES)
        }

        private static func daemon(_ fleet: FleetFixture) throws -> pid_t {
            let status = try fleet.on("h1", "status", "--json").orThrow().decoded(as: StatusDocument.self)
            guard let mount = status.mounts.first else { throw TestFailure("no mount") }
            return mount.pid
        }

        @Test("An agent that starts before etcd closes grants revoked in the meantime first")
        func startsFirst() throws {
            let fleet = try FleetFixture(hosts: ["h1"])
            let source = try fleet.source()
            try fleet.administer("grant", "--fleet", source, "--view", "v", "--name", "x").orThrow()
            try fleet.administer("grant", "--fleet", try fleet.source("y"), "--view", "v", "--name", "y").orThrow()
            fleet.killAgent("h1")
            try fleet.files.wait(until: "its lease is gone", within: 60) { try fleet.host("h1")?.state == "gone" }
            let revoked = try fleet.administer("revoke", "--fleet", "x", "--json").orThrow().decoded(as: [FleetRevocation].self)
            #expect(revoked[0].state("h1") == "fenced")
            fleet.servers.kill(fleet.servers.members[0])
            let mount = try fleet.mount("h1")
            try fleet.startAgent("h1")
            try fleet.files.wait(until: "it says that etcd does not answer") { fleet.said("h1").contains("no endpoint of etcd answers") }
            #expect(FleetFixture.reading(mount + "/x/file") == EACCES)
            #expect(FleetFixture.reading(mount + "/y/file") == EACCES, "nobody has said that it is valid")
            try fleet.servers.start(fleet.servers.members[0])
            try fleet.awaitReading(mount + "/y/file", 0)
            #expect(FleetFixture.reading(mount + "/x/file") == EACCES)
        }

        @Test("An agent repeats its report after an older one arrives late")
        func lateWord() throws {
            let fleet = try FleetFixture(hosts: ["h1"])
            try fleet.administer("grant", "--fleet", try fleet.source(), "--view", "v", "--name", "x").orThrow()
            let last = try #require(try fleet.host("h1")).revision
            let root = try fleet.rootOfEtcd()
            try fleet.servers.etcdctl("put", "--ignore-lease", "grantfs/hosts/h1/state", "{\"revision\":1}", user: root).orThrow()
            try fleet.files.wait(until: "it is where it was", within: 20) { try (fleet.host("h1")?.revision ?? 0) >= last }
        }

        @Test("A fleet grant gets its name once the previous grant is withdrawn")
        func nameOfOneBefore() throws {
            let fleet = try FleetFixture(hosts: ["h1"], lease: "60s")
            let mount = try fleet.mount("h1")
            try fleet.administer("grant", "--fleet", try fleet.source(), "--view", "v", "--name", "x").orThrow()
            try fleet.awaitReading(mount + "/x/file", 0)
            // It receives both at once.
            fleet.signalAgent("h1", SIGSTOP)
            #expect(try fleet.administer("remove", "--fleet", "x", "--timeout", "0.3").status == 3)
            let other = try fleet.source("other")
            try "next".write(toFile: other + "/next", atomically: false, encoding: .utf8)
            let id = try fleet.administer("grant", "--fleet", other, "--view", "v", "--name", "x", "--timeout", "0.3").trimmed
            let daemon = try Self.daemon(fleet)
            kill(daemon, SIGSTOP)
            defer { kill(daemon, SIGCONT) }
            fleet.signalAgent("h1", SIGCONT)
            try fleet.files.wait(until: "the host says why") {
                try fleet.host("h1")?.problems[id]?.contains("is not withdrawn from all mounts yet") == true
            }
            kill(daemon, SIGCONT)
            try fleet.awaitReading(mount + "/x/next", 0)
        }

        @Test("An agent follows changes again after etcd was killed and compacted")
        func compacted() throws {
            let fleet = try FleetFixture(hosts: ["h1"], lease: "30s")
            let mount = try fleet.mount("h1")
            try fleet.administer("grant", "--fleet", try fleet.source(), "--view", "v", "--name", "x").orThrow()
            try fleet.awaitReading(mount + "/x/file", 0)
            let member = fleet.servers.members[0]
            let root = try fleet.rootOfEtcd()
            // It receives no events while it is stopped, and continues from a revision that has
            // been compacted.
            fleet.signalAgent("h1", SIGSTOP)
            fleet.servers.kill(member)
            try fleet.servers.start(member)
            try fleet.servers.awaitAnswer(of: member)
            for number in 0..<5 {
                try fleet.servers.etcdctl("put", "grantfs/bell", "{\"audiences\":[\"none=\(number)\"]}", user: root).orThrow()
            }
            struct Status: Decodable { let revision: Int64 }
            let revision = try fleet.administer("fleet", "status", "--json").orThrow().decoded(as: Status.self).revision
            try fleet.servers.etcdctl("compact", "\(revision)", user: root).orThrow()
            fleet.signalAgent("h1", SIGCONT)
            for _ in 0..<3 {
                let revoked = try fleet.administer("revoke", "--fleet", "x", "--timeout", "60", "--json").orThrow()
                #expect(try revoked.decoded(as: [FleetRevocation].self)[0].state("h1") == "confirmed", "\(revoked)")
                #expect(FleetFixture.reading(mount + "/x/file") == EACCES)
                try fleet.administer("restore", "--fleet", "x").orThrow()
                try fleet.awaitReading(mount + "/x/file", 0)
            }
        }

        @Test("An agent opens no grants if another agent reports for its host")
        func twins() throws {
            let fleet = try FleetFixture(hosts: ["h1"])
            try fleet.administer("grant", "--fleet", try fleet.source(), "--view", "v", "--name", "x").orThrow()
            try Command.shell(
                "mkdir -m 700 -p \"$2/fleet\" && cp -p \"$1\" \"$2/fleet/host.json\"", fleet.store("h1") + "/fleet/host.json",
                fleet.store("twin")
            )
            .orThrow()
            let mount = try {
                try fleet.on("twin", "grant", try fleet.source("own"), "--view", "v").orThrow()
                return try fleet.mount("twin")
            }()
            try fleet.startAgent("twin")
            try fleet.files.wait(until: "it says that another has the lease") {
                fleet.said("twin").contains("another agent has the lease of “h1”")
            }
            #expect([EACCES, ENOENT].contains(FleetFixture.reading(mount + "/x/file")))
            #expect(FleetFixture.reading(mount + "/own/file") == 0, "what was granted there goes on")
            let again = try fleet.on("h1", "agent")
            #expect(again.status == 1 && again.errors.contains("an agent runs here already"))
        }

        @Test("An agent closes grants of a newer fleet version and withdraws invalid ones")
        func nonsense() throws {
            let fleet = try FleetFixture(hosts: ["h1"])
            let mount = try fleet.mount("h1")
            let id = try fleet.administer("grant", "--fleet", try fleet.source(), "--view", "v", "--name", "x").orThrow().trimmed
            try fleet.awaitReading(mount + "/x/file", 0)
            let root = try fleet.rootOfEtcd()
            let key = "grantfs/grants/all/\(id)"
            let good = try fleet.servers.etcdctl("get", "--print-value-only", key, user: root).orThrow().trimmed
            let flaws = [
                "nonsense", good.replacingOccurrences(of: "\"format\":1", with: "\"format\":2"),
                good.replacingOccurrences(of: "\"path\":\"/", with: "\"path\":\"/../"),
            ]
            for (number, bad) in flaws.enumerated() {
                try fleet.servers.etcdctl("put", key, bad, user: root).orThrow()
                try fleet.servers.etcdctl("put", "grantfs/bell", "{}", user: root).orThrow()
                try fleet.awaitReading(mount + "/x/file", EACCES)
                try fleet.files.wait(until: "the host says why") { try fleet.host("h1")?.problems[id] != nil }
                let mended = good.replacingOccurrences(of: "\"activation\":1,", with: "\"activation\":\(number + 2),")
                try fleet.servers.etcdctl("put", key, mended, user: root).orThrow()
                try fleet.servers.etcdctl("put", "grantfs/bell", "{}", user: root).orThrow()
                try fleet.awaitReading(mount + "/x/file", 0)
            }
            try fleet.servers.etcdctl("put", "grantfs/format", "{\"format\":9}", user: root).orThrow()
            try fleet.awaitReading(mount + "/x/file", EACCES)
            #expect(fleet.said("h1").contains("it is of version 9"))
            let refused = try fleet.administer("list", "--fleet")
            #expect(refused.status == 1 && refused.errors.contains("it is of version 9"))
        }
    }
}

/// A list that several threads add to.
final class Locked<Value: Sendable>: @unchecked Sendable {
    // Safe to share: behind the lock.
    private let lock = NSLock()
    private var held: Value
    init(_ value: Value) { held = value }
    var value: Value { lock.withLock { held } }
    func change(_ body: (inout Value) -> Void) { lock.withLock { body(&held) } }
}

extension Locked where Value == [Int32] {
    func add(_ item: Int32) { change { $0.append(item) } }
}
