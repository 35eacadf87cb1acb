import Glibc
import GrantAdministration
import GrantCommandLine
import GrantCommandSupport
import GrantFleet
import GrantModel
import GrantSystem

/// Checks this machine's part in a fleet: etcd, certificates, the agent.
enum FleetChecks {
    /// How long before its end a certificate should be replaced, in seconds.
    private static let renewal = 14.0 * 86_400

    /// Prints the findings as JSON: `fleet-check`.
    static func run(_ arguments: ParsedArguments) throws(GrantError) -> Int32 {
        try Terminal.print(JSON.array(try findings(arguments).map(\.json)).text)
        return 0
    }

    private static func findings(_ arguments: ParsedArguments) throws(GrantError) -> [Finding] {
        let store = try arguments.storeDirectory()
        var findings: [Finding] = []
        for isHost in [false, true] {
            let file = FleetFiles.credentials(host: isHost, store: store)
            guard access(file, F_OK) == 0 else { continue }
            do throws(GrantError) {
                let credentials = try FleetCredentials(file: file)
                findings += try etcd(credentials) + certificates(credentials)
                if isHost, let host = try HostFleetStatus(store: store) { findings.append(agent(host)) }
            } catch {
                findings.append(.problem("fleet", error.description, error.advice ?? "take the host in again: grantfs fleet join FILE"))
            }
        }
        return findings
    }

    private static func etcd(_ credentials: FleetCredentials) throws(GrantError) -> [Finding] {
        try EtcdClient(credentials.settings).members().map { member in
            if let failure = member.failure {
                let error = failure.error("\(member.endpoint) is not heard")
                return .problem("etcd", error.description, error.advice ?? "look at etcd there")
            }
            if !member.alarms.isEmpty {
                return .problem(
                    "etcd", "\(member.endpoint) has an alarm: \(member.alarms.joined(separator: ", "))",
                    "grantfs fleet status, from where the fleet is administered")
            }
            return .ok("etcd", "\(member.endpoint) answers (\(member.version))")
        }
    }

    private static func certificates(_ credentials: FleetCredentials) -> [Finding] {
        let now = Instant(nanoseconds: Clock.realtime)
        let texts = [("the client's certificate", credentials.settings.certificate), ("the authority", credentials.settings.authorities)]
        return texts.compactMap { name, text in
            guard let text else { return nil }
            guard let end = ClientCertificate.expiry(text) else {
                return .problem("certificate", "\(name) cannot be read", "have a new invitation made: grantfs fleet invite")
            }
            let until = Timestamp.local(end)
            if end <= now {
                return .problem("certificate", "\(name) has expired at \(until)", "have a new invitation made: grantfs fleet invite")
            }
            if end.seconds(since: now) < renewal {
                return .note("certificate", "\(name) expires at \(until)", "have a new invitation made: grantfs fleet invite")
            }
            return .ok("certificate", "\(name) is valid until \(until)")
        }
    }

    private static func agent(_ host: HostFleetStatus) -> Finding {
        if !host.isAgentRunning {
            return .problem("agent", "this host is “\(host.host)” in a fleet, and \(host.agent)", "systemctl enable --now grantfs-agent")
        }
        if !host.isOpen { return .problem("agent", host.lease, "journalctl -u grantfs-agent says why") }
        return .ok("agent", "\(host.agent); \(host.lease)")
    }
}
