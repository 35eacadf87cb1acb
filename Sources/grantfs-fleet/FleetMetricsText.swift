import GrantCommandLine
import GrantCommandSupport
import GrantFleet
import Glibc
import GrantModel
import GrantStore
import GrantSystem

/// `metrics --fleet`
enum FleetMetricsCommand {
    static func run(_ arguments: ParsedArguments) throws(GrantError) -> Int32 {
        if try arguments.view() != nil { throw GrantError(.usage, "metrics: --view does not go with --fleet") }
        return try MetricsServer.run(arguments) { () throws(GrantError) in
            FleetMetricsText.text(of: try arguments.openFleet().snapshot(leases: 0))
        }
    }
}

/// The metrics of a fleet, as OpenMetrics.
enum FleetMetricsText {
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
