import Foundation
import Glibc
import GrantFleet
import Synchronization
import TestSupport
import Testing

extension GrantFleetTests {
    /// etcd 3.4 requires no password to raise an alarm, list leases or renew them.
    @Suite(.enabled(if: Machine.offers("curl"), "\(Machine.needs("curl"))"))
    struct UnauthenticatedCallsTests {
        @Test("Under a CORRUPT alarm hosts close, and the next revocation disarms it")
        func corrupt() throws {
            let fleet = try FleetFixture(hosts: ["h1"])
            let mount = try fleet.mount("h1")
            for name in ["x", "y"] {
                try fleet.administer("grant", "--fleet", try fleet.source(name), "--view", "v", "--name", name).orThrow()
                try fleet.awaitReading("\(mount)/\(name)/file", 0)
            }
            try fleet.raise("CORRUPT")
            let status = try fleet.administer("fleet", "status")
            #expect(status.status == 1 && status.text.contains("alarm CORRUPT"), "\(status)")
            try fleet.awaitReading(mount + "/y/file", EACCES)
            let revoked = try fleet.administer("revoke", "--fleet", "x", "--timeout", "60").orThrow()
            #expect(revoked.errors.contains("an alarm (CORRUPT)"), "\(revoked)")
            try fleet.awaitReading(mount + "/y/file", 0)
            #expect(FleetFixture.reading(mount + "/x/file") == EACCES)
            #expect(try fleet.administer("fleet", "status").status == 0)
        }

        @Test("A NOSPACE alarm of a database with room is disarmed by the next grant")
        func noSpace() throws {
            let fleet = try FleetFixture(hosts: ["h1"])
            try fleet.raise("NOSPACE")
            let granted = try fleet.administer("grant", "--fleet", try fleet.source(), "--view", "v", "--name", "x").orThrow()
            #expect(granted.errors.contains("an alarm (NOSPACE)"), "\(granted)")
        }

        @Test("A host that was taken out is fenced although others renew its lease")
        func takenOut() throws {
            let fleet = try FleetFixture(hosts: ["h1"])
            try fleet.administer("grant", "--fleet", try fleet.source(), "--view", "v", "--name", "x").orThrow()
            fleet.killAgent("h1")
            let renewing = try LeaseRenewal(of: "h1", in: fleet)
            defer { renewing.end() }
            try fleet.administer("fleet", "leave", "h1").orThrow()
            let revoked = try fleet.administer("revoke", "--fleet", "x", "--timeout", "60", "--json")
            let host = try revoked.decoded(as: [FleetRevocation].self)[0]
            #expect(revoked.status == 0 && host.state("h1") == "fenced", "\(revoked)")
        }

        @Test("A silent host is fenced by short commands although others renew its lease")
        func silent() throws {
            let fleet = try FleetFixture(hosts: ["h1"])
            try fleet.administer("grant", "--fleet", try fleet.source(), "--view", "v", "--name", "x").orThrow()
            fleet.killAgent("h1")
            let renewing = try LeaseRenewal(of: "h1", in: fleet)
            defer { renewing.end() }
            #expect(try fleet.administer("revoke", "--fleet", "x", "--timeout", "0.1").status == 3)
            try fleet.files.wait(until: "the host is called fenced", within: 60) {
                try fleet.administer("revoke", "--fleet", "x", "--timeout", "0.1").status == 0
            }
        }

        @Test("A revocation waits for a host with an unconfirmed mount beyond the lease")
        func pending() throws {
            let fleet = try FleetFixture(hosts: ["h1"], lease: "5s")
            let mount = try fleet.mount("h1")
            try fleet.administer("grant", "--fleet", try fleet.source(), "--view", "v", "--name", "x").orThrow()
            try fleet.awaitReading(mount + "/x/file", 0)
            struct Status: Decodable {
                struct Mount: Decodable { let pid: Int32 }
                let mounts: [Mount]
            }
            let daemon = try #require(try fleet.on("h1", "status", "--json").orThrow().decoded(as: Status.self).mounts.first?.pid)
            kill(daemon, SIGSTOP)
            defer { kill(daemon, SIGCONT) }
            let revoked = try fleet.administer("revoke", "--fleet", "x", "--timeout", "12", "--json")
            let host = try revoked.decoded(as: [FleetRevocation].self)[0]
            #expect(revoked.status == 3 && host.state("h1") == "waiting", "\(revoked)")
            kill(daemon, SIGCONT)
            try fleet.administer("revoke", "--fleet", "x", "--timeout", "60").orThrow()
        }
    }
}

/// A client without a password that keeps a host's lease in etcd.
private final class LeaseRenewal: Sendable {
    private let ends = Atomic(false)
    private let thread = DispatchGroup()

    init(of host: String, in fleet: FleetFixture) throws {
        let administrator = try EtcdClient(try FleetCredentials(file: fleet.store("administrator") + "/fleet/administrator.json").settings)
        let client = try EtcdClient(EtcdSettings(endpoints: fleet.servers.endpoints))
        DispatchQueue.global().async(group: thread) { [self] in
            while !ends.load(ordering: .relaxed) {
                let leases = Set((try? administrator.list("grantfs/hosts/\(host)/"))?.entries.map(\.lease) ?? [])
                for lease in leases where lease != 0 { _ = try? client.renewLease(lease) }
                pause(milliseconds: 100)
            }
        }
    }

    func end() {
        ends.store(true, ordering: .relaxed)
        thread.wait()
    }
}

extension FleetFixture {
    /// Raises an alarm in etcd, without a password.
    func raise(_ alarm: String) throws {
        let script = """
            member=$(curl --silent --fail "$1/v3/maintenance/status" --data '{}' | sed 's/.*"member_id":"\\([0-9]*\\)".*/\\1/')
            curl --silent --fail "$1/v3/maintenance/alarm" --data "{\\"action\\":\\"ACTIVATE\\",\\"memberID\\":\\"$member\\",\\"alarm\\":\\"$2\\"}"
            """
        try Command.run(["bash", "-euc", script, "bash", servers.endpoints[0], alarm], within: 60).orThrow()
    }
}
