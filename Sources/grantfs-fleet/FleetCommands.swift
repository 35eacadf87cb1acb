import GrantCommandLine

/// The commands of `grantfs-fleet`: its own, and those that are run with `--fleet`.
enum FleetCommands {
    static let bodies: [String: CommandBody] = [
        "fleet init": FleetCommand.make, "fleet invite": FleetCommand.invite, "fleet join": FleetMembership.join,
        "fleet leave": FleetCommand.leave, "fleet hosts": FleetReport.hosts, "fleet status": FleetReport.status,
        "fleet apply": FleetApply.run, "fleet console": FleetConsoleCommand.run,
        "agent": AgentCommand.run, "fleet-check": FleetChecks.run,
        "grant": FleetGrants.grant, "list": FleetGrants.list, "revoke": FleetGrants.revoke, "restore": FleetGrants.restore,
        "remove": FleetGrants.remove, "set": FleetGrants.set, "repair": FleetGrantReport.repair, "log": FleetHistory.log,
        "top": FleetTopCommand.run, "metrics": FleetMetricsCommand.run,
    ]
}
