import GrantCommandLine
import GrantFleet
import Glibc
import GrantModel
import GrantStore
import GrantSystem

/// The metrics of an agent and of a fleet, as OpenMetrics.
enum FleetMetricsText {
    // MARK: the agent of this host

    /// Adds nothing if no agent has run since the machine was booted.
    static func addAgent(of store: GrantStore, to text: inout OpenMetrics) {
        guard let report = AgentReport(in: store.runDirectory) else { return }
        add(report, valid: FleetLease.read(in: store.runDirectory), isUp: isUp(report), to: &text)
    }

    private static func isUp(_ report: AgentReport) -> Bool {
        guard let pid = pid_t(exactly: report.pid), pid > 0 else { return false }
        return kill(pid, 0) == 0 || errno == EPERM
    }

    /// `valid` is the time until which the fleet's grants may be used here, by `BootClock`, or 0 if
    /// that is unknown.
    static func add(_ report: AgentReport, valid: Int64, isUp: Bool, to text: inout OpenMetrics) {
        let now = BootClock.now
        let gauges: [(String, String, Int64)] = [
            ("grantfs_agent_up", "Whether the process of the host's agent exists.", isUp ? 1 : 0),
            ("grantfs_agent_open", "Whether the fleet's grants may be used on this host.", valid > now ? 1 : 0),
            ("grantfs_agent_seen_revision", "The fleet's last change that the agent has heard of.", report.seen),
            ("grantfs_agent_stored_revision", "Up to here the store has all that the fleet says.", report.stored),
            ("grantfs_agent_applied_revision", "Up to here every mount has confirmed it: the watermark.", report.applied),
            ("grantfs_agent_grants", "Grants of the fleet that are active in the store.", report.grants),
            ("grantfs_agent_problems", "Grants of the fleet that the host cannot apply.", report.problems),
        ]
        for (name, help, value) in gauges {
            text.begin(name, .gauge, help)
            text.add(name, [], signed: value)
        }
        let times: [(String, String, Int64)] = [
            ("grantfs_agent_start_time_seconds", "When the agent was started, since 1970.", report.started),
            (
                "grantfs_agent_last_renewal_time_seconds", "When etcd renewed the host's lease last, since 1970, or 0 for never.",
                report.renewed
            ),
            (
                "grantfs_agent_last_fence_time_seconds",
                "When the mounts last withdrew the fleet's grants for lack of a renewal, since 1970, or 0 for never.",
                report.fenced
            ),
            (
                "grantfs_agent_lease_left_seconds", "How long the host's lease lasts at the least, below 0 when it may have ended.",
                report.lease == 0 ? 0 : report.lease &- now
            ),
            (
                "grantfs_agent_fence_seconds",
                "Until the mounts withdraw the fleet's grants, unless the lease is renewed, below 0 since they have.",
                valid == 0 ? 0 : valid &- now
            ),
        ]
        for (name, help, value) in times {
            text.begin(name, .gauge, unit: "seconds", help)
            text.add(name, [], seconds: value)
        }
        let counters: [(String, String, Int64)] = [
            ("grantfs_agent_renewals", "Renewals of the lease, since the agent was started.", report.renewals),
            ("grantfs_agent_failures", "Renewals that failed, since the agent was started.", report.failures),
            (
                "grantfs_agent_fences",
                "Times that the mounts withdrew the fleet's grants for lack of a renewal, as far as the agent knows.",
                report.fences
            ),
        ]
        for (name, help, value) in counters {
            text.begin(name, .counter, help)
            text.add(name + "_total", [], signed: max(0, value))
        }
    }

    // MARK: a fleet

    static func text(of fleet: FleetSnapshot) -> String {
        var text = OpenMetrics()
        text.begin("grantfs_build", .info, "The program that says this.")
        text.add("grantfs_build_info", [("version", ProgramDeclaration.version)], 1)
        text.begin("grantfs_fleet_revision", .gauge, "The revision of etcd at which this is so.")
        text.add("grantfs_fleet_revision", [], signed: fleet.revision)
        text.begin("grantfs_fleet_lease_seconds", .gauge, unit: "seconds", "How long a host that is cut off may serve.")
        text.add("grantfs_fleet_lease_seconds", [], signed: fleet.lease)
        text.begin("grantfs_fleet_hosts", .gauge, "Hosts of the fleet: live, or not heard of.")
        let live = fleet.hosts.count { $0.lease != nil }
        for (state, count) in [("live", live), ("gone", fleet.hosts.count - live)] {
            text.add("grantfs_fleet_hosts", [("state", state)], signed: Int64(count))
        }
        text.begin("grantfs_fleet_lagging_hosts", .gauge, "Live hosts that have not done all that concerns them.")
        text.add("grantfs_fleet_lagging_hosts", [], signed: Int64(fleet.hosts.count { fleet.isLagging($0) }))
        text.begin("grantfs_fleet_grants", .gauge, "Grants of the fleet, by state.")
        for state in RecordedState.allCases {
            text.add(
                "grantfs_fleet_grants", [("state", state.rawValue)], signed: Int64(fleet.grants.count { $0.state(at: fleet.time) == state })
            )
        }
        text.begin("grantfs_fleet_unreadable_grants", .gauge, "Entries among the grants that are invalid.")
        text.add("grantfs_fleet_unreadable_grants", [], signed: Int64(fleet.invalidEntries.count))
        addHosts(fleet, to: &text)
        text.end()
        return text.text
    }

    private static func addHosts(_ fleet: FleetSnapshot, to text: inout OpenMetrics) {
        let families: [(String, String, (FleetHost) -> Int64)] = [
            ("grantfs_fleet_host_up", "Whether the host has a lease.", { $0.lease == nil ? 0 : 1 }),
            ("grantfs_fleet_host_lagging", "Whether the host has not done all that concerns it.", { fleet.isLagging($0) ? 1 : 0 }),
            (
                "grantfs_fleet_host_applied_revision", "The last change that the host has applied, or 0 if it has no lease.",
                { $0.lease == nil ? 0 : $0.applied }
            ),
            ("grantfs_fleet_host_wanted_revision", "The last change that concerns the host.", { fleet.wanted(of: $0) }),
            ("grantfs_fleet_host_problems", "Grants that the host cannot apply.", { Int64($0.problems.count) }),
        ]
        for (name, help, value) in families {
            text.begin(name, .gauge, help)
            for host in fleet.hosts { text.add(name, [("host", host.id)], signed: value(host)) }
        }
    }
}
