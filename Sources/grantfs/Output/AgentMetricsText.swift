import Glibc
import GrantAdministration
import GrantCommandSupport
import GrantStore
import GrantSystem

/// The metrics of this host's agent, as OpenMetrics.
enum AgentMetricsText {
    /// Adds nothing if no agent has run since the machine was booted.
    static func add(agentOf store: GrantStore, to text: inout OpenMetrics) {
        guard let report = AgentReport(in: store.runDirectory) else { return }
        add(report, valid: FleetLease.read(in: store.runDirectory), isUp: isUp(report), to: &text)
    }

    private static func isUp(_ report: AgentReport) -> Bool {
        guard let pid = pid_t(exactly: report.pid), pid > 0 else { return false }
        return kill(pid, 0) == 0 || errno == EPERM
    }

    /// `valid` is the time until which the fleet's grants may be used here, by `BootClock`, or 0 if
    /// that is unknown.
    private static func add(_ report: AgentReport, valid: Int64, isUp: Bool, to text: inout OpenMetrics) {
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
}
