import Foundation
import Glibc
import TestSupport
import Testing

extension GrantFleetTests {
    /// What administrators of a fleet and of its hosts are told.
    @Suite struct HostReportTests {
        @Test("The fleet shows a revocation by a host's administrator")
        func revokedThere() throws {
            let fleet = try FleetFixture(hosts: ["h1"])
            let mount = try fleet.mount("h1")
            try fleet.administer("grant", "--fleet", try fleet.source(), "--view", "v", "--name", "x").orThrow()
            try fleet.awaitReading(mount + "/x/file", 0)
            try fleet.on("h1", "revoke", "x").orThrow()
            try fleet.files.wait(until: "the host says so", within: 60) {
                try fleet.administer("repair", "--fleet", "x").orThrow().text.contains("it was revoked on this host")
            }
            #expect(try fleet.administer("fleet", "hosts").orThrow().errors.contains("it was revoked on this host"))
            let restored = try fleet.administer("restore", "--fleet", "x")
            #expect(restored.status == 3 && restored.errors.contains("it was revoked on this host"), "\(restored)")
            try fleet.administer("revoke", "--fleet", "x").orThrow()
            try fleet.administer("restore", "--fleet", "x").orThrow()
            try fleet.awaitReading(mount + "/x/file", 0)
        }

        @Test("`list` marks grants of the fleet, and on a fenced host as unavailable")
        func list() throws {
            let fleet = try FleetFixture(hosts: ["h1"])
            try fleet.administer("grant", "--fleet", try fleet.source(), "--view", "v", "--name", "x").orThrow()
            try fleet.on("h1", "grant", try fleet.source("y"), "--view", "v").orThrow()
            let shown = try fleet.on("h1", "list").orThrow().text
            #expect(shown.contains("the fleet") && shown.contains("this host"), "\(shown)")
            let status = try fleet.on("h1", "fleet", "status")
            #expect(status.status == 0 && status.text.contains("this host is “h1”: its agent runs"), "\(status)")
            fleet.killAgent("h1")
            try fleet.files.wait(until: "the host is fenced", within: 60) {
                try fleet.on("h1", "list", "--json").orThrow().decoded(as: [GrantDocument].self)
                    .contains { $0.name == "x" && $0.state == "unavailable" && $0.reason?.contains("lease") == true }
            }
            let states = try fleet.on("h1", "list", "--json").orThrow().decoded(as: [GrantDocument].self)
            #expect(states.contains { $0.name == "y" && $0.state == "active" })
            let fenced = try fleet.on("h1", "fleet", "status")
            #expect(fenced.status == 1 && fenced.text.contains("its agent does not run"), "\(fenced)")
            let doctor = try fleet.on("h1", "doctor").text
            #expect(doctor.contains("PROBLEM  agent") && doctor.contains("ok       etcd"), "\(doctor)")
        }

        @Test("A fleet grant whose path no host has exits with 3 and reports that")
        func nowhere() throws {
            let fleet = try FleetFixture(hosts: ["h1"])
            let output = try fleet.administer("grant", "--fleet", fleet.files.base + "/nowhere", "--view", "v")
            #expect(output.status == 3 && output.errors.contains("no host can show it"), "\(output)")
        }

        @Test("`revoke --timeout` returns while etcd is silent and reports no revocation")
        func timeout() throws {
            let fleet = try FleetFixture(hosts: [])
            try fleet.administer("grant", "--fleet", try fleet.source(), "--view", "v", "--name", "x").orThrow()
            fleet.servers.suspend(fleet.servers.members[0])
            defer { fleet.servers.suspend(fleet.servers.members[0], false) }
            let start = Machine.milliseconds
            let output = try fleet.administer("revoke", "--fleet", "x", "--timeout", "1")
            #expect(output.status == 1 && output.errors.contains("nothing was revoked"), "\(output)")
            #expect(Machine.milliseconds - start < 4_500 * Machine.slowness)
        }

        @Test("`fleet init` keeps an existing fleet")
        func again() throws {
            let fleet = try FleetFixture(hosts: [])
            let output = try fleet.administer("fleet", "init", "--endpoints", fleet.servers.list)
            #expect(output.status == 0 && output.errors.contains("this fleet exists already"), "\(output)")
            let other = try fleet.run(["fleet", "init", "--endpoints", fleet.servers.list], store: "other")
            #expect(other.status == 1 && other.errors.contains("asks for a password"), "\(other)")
        }
    }
}
