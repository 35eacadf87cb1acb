import GrantCommandLine
import GrantCommandSupport
import GrantFleet
import GrantConsoles
import GrantFleetTop
import Glibc
import GrantModel
import GrantSystem
import GrantTerminal

/// `top --fleet`
enum FleetTopCommand {
    /// For how many hosts each update reads the remaining time of the lease.
    private static let leases = 32

    static func run(_ arguments: ParsedArguments) throws(GrantError) -> Int32 {
        let delay = try arguments.delay()
        let timeout = try arguments.timeout()
        let view = try arguments.view()
        // The connection for updates. Each action has its own, so that it blocks nothing.
        let fleet = try arguments.openFleet()
        guard Screen.isAvailable else {
            var top = FleetTop(delay: delay, view: view)
            top.handle(.seen(try fleet.snapshot(leases: Int.max)))
            try Terminal.print(top.text())
            return 0
        }
        let work = LiveSession<FleetTop>.Work(
            look: { () throws(GrantError) in try fleet.snapshot(leases: leases) },
            act: { action throws(GrantError) in try change(action, try arguments.openFleet(), timeout) })
        let session = try LiveSession(FleetTop(delay: delay, view: view), delay: delay, work: work)
        let screen = try Screen()
        try session.run(on: screen)
        screen.close()
        return 0
    }

    private static func change(_ action: FleetTop.Action, _ fleet: FleetStore, _ timeout: Double) throws(GrantError) -> String {
        let (id, seen): (GrantID, Int64?)
        switch action {
        case .revoke(let grant): (id, seen) = (grant, nil)
        case .restore(let grant, let revision): (id, seen) = (grant, revision)
        }
        guard let grant = try fleet.grants().grants.first(where: { $0.id == id }) else {
            throw GrantError(.notFound, "nothing was changed", cause: "the grant no longer exists")
        }
        let now = Instant(nanoseconds: Clock.realtime)
        let verb = seen == nil ? "revoked" : "restored"
        let outcome = try fleet.change([grant], verb, withdraws: seen == nil) { grant throws(GrantError) in
            guard let seen else { return grant.revoked }
            return try grant.restored(at: now, seen: seen)
        }
        let hosts = try fleet.awaitHosts(outcome, timeout: timeout).flatMap(\.hosts)
        let waiting = hosts.filter { $0.state == .waiting }.map(\.host)
        if !waiting.isEmpty { return "\(verb) “\(grant.name)” on record, but not confirmed by \(waiting.joined(separator: ", "))" }
        let slowest = hosts.map(\.milliseconds).max().map { " in \(($0 * 10).rounded() / 10) ms" } ?? ""
        return "\(verb) “\(grant.name)”, by \(hosts.count == 1 ? "1 host" : "\(hosts.count) hosts")\(slowest)"
    }
}
