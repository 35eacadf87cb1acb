import Foundation
import Glibc
import GrantFleet
import Synchronization
import TestSupport
import Testing

extension GrantFleetTests {
    /// etcd does not limit the share of a user in its database and its time, so a compromised host
    /// can use up both.
    @Suite struct AHostThatFillsEtcd {
        @Test("A host that fills etcd blocks grants but not revocations")
        func fills() throws {
            let fleet = try FleetFixture(hosts: ["h1", "h2"], lease: "6s", options: FleetFixture.smallDatabase)
            let mount = try fleet.mount("h2")
            for name in ["x", "y"] {
                try fleet.administer("grant", "--fleet", try fleet.source(name), "--view", "v", "--name", name).orThrow()
            }
            for name in ["x", "y"] { try fleet.awaitReading("\(mount)/\(name)/file", 0) }
            let client = try EtcdClient(try FleetCredentials(file: fleet.store("h1") + "/fleet/host.json").settings)
            try fleet.fill { number, size in
                let value = [UInt8](repeating: 0x78, count: size)
                return (try? client.transaction(then: [.put("grantfs/hosts/h1/more\(number)", value)])) != nil
            }
            // Others go on serving: what they need to write fits, or they need to write nothing.
            let end = Machine.milliseconds + 15_000
            while Machine.milliseconds < end {
                #expect(FleetFixture.reading(mount + "/y/file") == 0)
                pause(milliseconds: 200)
            }
            let refused = try fleet.administer("grant", "--fleet", try fleet.source("z"), "--view", "v", "--name", "z")
            #expect(refused.status == 1 && refused.errors.contains("the database of etcd is full"), "\(refused)")
            let revoked = try fleet.administer("revoke", "--fleet", "x", "--timeout", "0.5")
            #expect(revoked.status == 3, "\(revoked)")
            try fleet.awaitReading(mount + "/x/file", ENOENT)

            // The steps of the guide.
            let full = try fleet.administer("fleet", "leave", "h1")
            #expect(full.status == 1 && full.errors.contains("not taken out wholly: the database of etcd is full"), "\(full)")
            #expect(throws: (any Error).self) { try client.transaction(then: [.delete("grantfs/hosts/h1/more0")]) }
            let root = try fleet.rootOfEtcd()
            struct Status: Decodable {
                struct Inner: Decodable {
                    struct Header: Decodable { let revision: Int }
                    let header: Header
                }
                let status: Inner
                enum CodingKeys: String, CodingKey { case status = "Status" }
            }
            let said = try fleet.servers.etcdctl("endpoint", "status", "--write-out", "json", user: root).orThrow()
            let revision = try #require(try JSONDecoder().decode([Status].self, from: Data(said.text.utf8)).first?.status.header.revision)
            try fleet.servers.etcdctl("compact", "\(revision)", user: root).orThrow()
            try fleet.servers.etcdctl("defrag", user: root).orThrow()
            try fleet.servers.etcdctl("alarm", "disarm", user: root).orThrow()
            try fleet.administer("fleet", "leave", "h1").orThrow()
            try fleet.files.wait(until: "nobody waits for it", within: 30) { try fleet.host("h1") == nil }
            try fleet.administer("grant", "--fleet", try fleet.source("z"), "--view", "v", "--name", "z").orThrow()
            try fleet.awaitReading(mount + "/z/file", 0)
            let other = try fleet.administer("revoke", "--fleet", "y", "--timeout", "60", "--json").orThrow().decoded(
                as: [FleetRevocation].self)
            #expect(other[0].state("h2") == "confirmed", "\(other)")
            #expect(FleetFixture.reading(mount + "/y/file") == EACCES)
        }

        /// It takes all of the machine's time, from other tests as well.
        @Test(
            "A revocation is confirmed while another host writes without pause",
            .enabled(if: ProcessInfo.processInfo.environment["GRANTFS_LONG_TESTS"] != nil, "with GRANTFS_LONG_TESTS only"))
        func writesWithoutPause() throws {
            let fleet = try FleetFixture(hosts: ["h1", "h2"], lease: "60s")
            let mount = try fleet.mount("h2")
            try fleet.administer("grant", "--fleet", try fleet.source(), "--view", "v", "--name", "x", "--hosts", "host=h2").orThrow()
            try fleet.awaitReading(mount + "/x/file", 0)
            let user = try #require(FleetFixture.user(in: fleet.store("h1") + "/fleet/host.json"))
            let ends = Atomic(false)
            let count = Atomic(0)
            let threads = DispatchGroup()
            // Its methods change nothing of it.
            nonisolated(unsafe) let servers = fleet.servers
            let value = String(repeating: "x", count: 1_400_000)
            for number in 0..<3 {
                DispatchQueue.global().async(group: threads) {
                    while !ends.load(ordering: .relaxed) {
                        let output = try? servers.etcdctl("put", "grantfs/hosts/h1/more\(number)", user: user, input: value)
                        if output?.status == 0 { count.add(1, ordering: .relaxed) }
                    }
                }
            }
            defer {
                ends.store(true, ordering: .relaxed)
                threads.wait()
            }
            try fleet.files.wait(until: "it writes") { count.load(ordering: .relaxed) > 5 }
            for _ in 0..<5 {
                let start = Machine.milliseconds
                let revoked = try fleet.administer("revoke", "--fleet", "x", "--timeout", "50", "--json").orThrow().decoded(
                    as: [FleetRevocation].self)
                print("revoked after \(Int(Machine.milliseconds - start)) ms, \(count.load(ordering: .relaxed)) writes")
                #expect(revoked[0].state("h2") == "confirmed", "\(revoked)")
                #expect(FleetFixture.reading(mount + "/x/file") == EACCES)
                try fleet.administer("restore", "--fleet", "x", "--timeout", "50").orThrow()
                try fleet.awaitReading(mount + "/x/file", 0)
            }
            #expect(count.load(ordering: .relaxed) > 20)
        }
    }
}
