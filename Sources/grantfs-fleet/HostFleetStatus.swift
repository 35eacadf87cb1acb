import Glibc
import GrantAdministration
import GrantCommandLine
import GrantCommandSupport
import GrantFleet
import GrantModel
import GrantStore
import GrantSystem

/// The state of a host's part in its fleet: `fleet status` on a host that administers no fleet, and `doctor`.
struct HostFleetStatus {
    let host: String
    let credentials: FleetCredentials
    /// It is nil if no agent has written a report since the machine was started.
    let report: AgentReport?
    let isAgentRunning: Bool
    /// Nanoseconds until the mounts close the fleet's grants. It is 0 or less after that.
    let timeLeft: Int64

    /// The result is nil if this store is of no host, or administers a fleet.
    init?(_ arguments: ParsedArguments) throws(GrantError) {
        let store = try arguments.storeDirectory()
        let isAdministrator = getenv("GRANTFS_FLEET") != nil || access(FleetFiles.credentials(host: false, store: store), F_OK) == 0
        guard !isAdministrator, let found = try HostFleetStatus(store: store) else { return nil }
        self = found
    }

    /// The result is nil if this store is of no host.
    init?(store: String) throws(GrantError) {
        let file = FleetFiles.credentials(host: true, store: store)
        guard access(file, F_OK) == 0 else { return nil }
        credentials = try FleetCredentials(file: file)
        guard let host = credentials.host else { throw GrantError(.invalidFile, "\(file) is not of a host") }
        self.host = host
        let run = try GrantStore(directory: store, create: false).runDirectory
        report = AgentReport(in: run)
        isAgentRunning = report.map { kill(pid_t(clamping: $0.pid), 0) == 0 || errno == EPERM } ?? false
        timeLeft = FleetLease.read(in: run) - BootClock.now
    }

    var isOpen: Bool { timeLeft > 0 }

    /// What the agent does, for people.
    var agent: String {
        guard let report, isAgentRunning else { return "its agent does not run" }
        return "its agent runs (pid \(report.pid))"
    }

    var lease: String {
        isOpen
            ? "the fleet's grants are open for \(timeLeft / 1_000_000_000) s, and longer if the lease is renewed"
            : "the fleet's grants are closed, because the lease has ended"
    }

    /// Returns 1 if something has to be done.
    func show(_ arguments: ParsedArguments) throws(GrantError) -> Int32 {
        let members = try EtcdClient(credentials.settings).members()
        let (grants, problems) = (report?.grants ?? 0, report?.problems ?? 0)
        if arguments.wantsJSON {
            let document = JSON.object([
                ("host", .string(host)), ("agent", isAgentRunning ? .integer(report?.pid ?? 0) : .null), ("open", .bool(isOpen)),
                ("seconds", .integer(max(0, timeLeft / 1_000_000_000))), ("grants", .integer(grants)), ("problems", .integer(problems)),
                ("members", .array(members.map { FleetReport.json($0) })),
            ])
            try Terminal.print(document.text)
        } else {
            try Terminal.print("this host is “\(host)”: \(agent)")
            try Terminal.print("\(lease), \(grants) active, \(problems) that cannot be shown")
            try FleetReport.show(members)
        }
        FleetReport.report(members)
        if !isAgentRunning { Terminal.note("start the agent: systemctl enable --now grantfs-agent, or grantfs agent") }
        return isAgentRunning && isOpen && members.allSatisfy(\.isSound) ? 0 : 1
    }
}
