import Foundation
import Glibc
import TestSupport
import Testing

extension GrantFleetTests {
    @Suite struct TheMetrics {
        private func metrics(_ output: Output) throws -> OpenMetricsText { try OpenMetricsText(output.orThrow().text) }

        @Test("The metrics of an agent report its revision, its lease and the fence")
        func agent() throws {
            let fleet = try FleetFixture(hosts: ["h1"], lease: "6s")
            let mount = try fleet.mount("h1")
            try fleet.administer("grant", "--fleet", try fleet.source(), "--view", "v", "--name", "x").orThrow()
            try fleet.administer("grant", "--fleet", fleet.files.base + "/missing", "--view", "v", "--name", "y", "--timeout", "5")
            try fleet.awaitReading(mount + "/x/file", 0)
            try fleet.files.wait(until: "the agent has said so", within: 30) {
                let text = try self.metrics(try fleet.on("h1", "metrics"))
                return text.value("grantfs_agent_grants") == 1 && text.value("grantfs_agent_problems") == 1
            }
            var text = try metrics(try fleet.on("h1", "metrics"))
            #expect(text.value("grantfs_agent_up") == 1 && text.value("grantfs_agent_open") == 1)
            let applied = try #require(text.value("grantfs_agent_applied_revision"))
            #expect(
                applied > 0 && text.value("grantfs_agent_seen_revision") == applied
                    && text.value("grantfs_agent_stored_revision") == applied)
            let left = try #require(text.value("grantfs_agent_lease_left_seconds"))
            let fence = try #require(text.value("grantfs_agent_fence_seconds"))
            #expect(left > 0 && left <= 6 && fence > 0 && fence <= 4 && fence < left, "\(left) s, \(fence) s")
            #expect(abs(try #require(text.value("grantfs_agent_last_renewal_time_seconds")) - Date().timeIntervalSince1970) < 60)
            #expect(try #require(text.value("grantfs_agent_renewals_total")) > 0)
            #expect(text.value("grantfs_agent_fences_total") == 0 && text.value("grantfs_agent_last_fence_time_seconds") == 0)
            fleet.servers.kill(fleet.servers.members[0])
            try fleet.awaitReading(mount + "/x/file", EACCES)
            text = try metrics(try fleet.on("h1", "metrics"))
            let since = try #require(text.value("grantfs_agent_fence_seconds"))
            #expect(text.value("grantfs_agent_open") == 0 && since <= 0)
            try fleet.servers.start(fleet.servers.members[0])
            try fleet.awaitReading(mount + "/x/file", 0)
            try fleet.files.wait(until: "the fence is told", within: 30) {
                try self.metrics(try fleet.on("h1", "metrics")).value("grantfs_agent_fences_total") == 1
            }
            text = try metrics(try fleet.on("h1", "metrics"))
            #expect(try #require(text.value("grantfs_agent_failures_total")) > 0)
            #expect(abs(try #require(text.value("grantfs_agent_last_fence_time_seconds")) - Date().timeIntervalSince1970) < 60)
            fleet.killAgent("h1")
            #expect(try metrics(try fleet.on("h1", "metrics")).value("grantfs_agent_up") == 0)
            // A machine without an agent reports none.
            try fleet.on("h9", "grant", try fleet.source("own"), "--view", "v").orThrow()
            #expect(try metrics(try fleet.on("h9", "metrics")).family("grantfs_agent_up") == nil)
        }

        @Test("The metrics of a fleet count hosts and grants by state")
        func fleet() throws {
            let fleet = try FleetFixture(hosts: ["h1", "h2"], lease: "20s")
            for name in ["x", "y"] {
                try fleet.administer("grant", "--fleet", try fleet.source(name), "--view", "v", "--name", name).orThrow()
            }
            try fleet.administer("revoke", "--fleet", "y").orThrow()
            var text = try metrics(try fleet.administer("metrics", "--fleet"))
            #expect(text.value("grantfs_fleet_hosts", ["state": "live"]) == 2 && text.value("grantfs_fleet_hosts", ["state": "gone"]) == 0)
            #expect(
                text.value("grantfs_fleet_grants", ["state": "active"]) == 1
                    && text.value("grantfs_fleet_grants", ["state": "revoked"]) == 1)
            #expect(text.value("grantfs_fleet_lagging_hosts") == 0 && text.value("grantfs_fleet_lease_seconds") == 20)
            fleet.signalAgent("h2", SIGSTOP)
            #expect(try fleet.administer("revoke", "--fleet", "x", "--timeout", "0.5").status == 3)
            text = try metrics(try fleet.administer("metrics", "--fleet"))
            #expect(text.value("grantfs_fleet_lagging_hosts") == 1 && text.value("grantfs_fleet_host_lagging", ["host": "h2"]) == 1)
            #expect(
                text.value("grantfs_fleet_host_up", ["host": "h2"]) == 1 && text.value("grantfs_fleet_host_lagging", ["host": "h1"]) == 0)
            let top = try fleet.administer("top", "--fleet").orThrow()
            #expect(top.lines[0] == "grantfs top: 2 of 2 hosts live, 1 behind, 0 of 2 grants active", "\(top)")
            #expect(
                top.lines.contains { $0.contains("h2") && $0.contains("behind") }
                    && top.lines.contains { $0.contains("x ") && $0.contains("1 of 2 wait") })
            fleet.signalAgent("h2", SIGCONT)
        }
    }

    @Suite(.enabled(if: Command.exists("chromium"), "\(Machine.needs("chromium"))"))
    struct ABrowser {
        @Test(
            "The page of the console works by keyboard and runs no foreign script", .timeLimit(.minutes(5))
        )
        func page() throws {
            let script = URL(fileURLWithPath: #filePath).deletingLastPathComponent().path + "/../../.ci/console-browser"
            try Command.run(["python3", script, Programs.grantfs], within: 240).orThrow()
        }
    }
}
