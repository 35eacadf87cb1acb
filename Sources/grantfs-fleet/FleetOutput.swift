import GrantCommandLine
import GrantCommandSupport
import GrantFleet
import GrantModel
import GrantSystem

/// The output about the fleet's grants, and the hosts' answers.
enum FleetOutput {
    static func json(_ grant: FleetGrant) -> [(String, JSON)] {
        let now = Instant(nanoseconds: Clock.realtime)
        return [
            ("id", .string(grant.id.description)), ("view", .string(grant.view.description)), ("name", .string(grant.name.description)),
            ("path", .string(grant.path)), ("filesystem", grant.filesystem.map { .string($0.description) } ?? .null),
            ("access", .string(grant.access.rawValue)), ("state", .string(grant.state(at: now).rawValue)),
            ("for", .string(grant.hosts.description)), ("created", JSON.time(grant.created)), ("expires", JSON.time(grant.expires)),
            ("coordination", .string(grant.coordination.rawValue)), ("revision", .integer(grant.revision)),
            JSON.rules(grant.rules),
        ]
    }

    static func json(_ host: HostConfirmation) -> JSON {
        .object([
            ("host", .string(host.host)), ("state", .string(host.state.rawValue)), ("milliseconds", .number(host.milliseconds)),
            ("until", JSON.time(host.until)), ("reason", host.reason.map { .string($0) } ?? .null),
        ])
    }

    /// Prints the result for each grant, and names every unconfirmed host and `failure`. Returns the exit status.
    /// `unchanged`: those that were so already.
    static func show(
        _ changes: [FleetChange], _ verb: String, _ what: String, _ arguments: ParsedArguments, unchanged: Set<GrantID> = [],
        failure: GrantError? = nil
    ) throws(GrantError) -> Int32 {
        if arguments.wantsJSON {
            let documents = changes.map { JSON.object(json($0.grant) + [("hosts", .array($0.hosts.map { json($0) }))]) }
            // As without --fleet: a single object for a grant that was granted or set.
            let isAlone = documents.count == 1 && ["grant", "set"].contains(arguments.command)
            try Terminal.print(isAlone ? documents[0].text : JSON.array(documents).text)
        } else {
            let sameVerb = verb == "restored" ? "active already:" : "is so already:"
            for change in changes { try Terminal.print(line(change, unchanged.contains(change.grant.id) ? sameVerb : verb)) }
        }
        return exitStatus(of: changes, what, failure, expectsShown: ["granted", "restored"].contains(verb))
    }

    private static func line(_ change: FleetChange, _ verb: String) -> String {
        let grant = change.grant
        var text =
            "\(verb) \(Terminal.visible(grant.name.bytes)) (\(grant.id.description.prefix(12))) in the fleet's view \(Terminal.visible(grant.view.description))"
        let confirmed = change.hosts.filter { $0.state == .confirmed }
        let fenced = change.hosts.filter { $0.state == .fenced }
        if let slowest = confirmed.max(by: { $0.milliseconds < $1.milliseconds }) {
            let names = confirmed.count > 5 ? "\(confirmed.count) hosts" : confirmed.map(\.host).joined(separator: ", ")
            text += ": confirmed by \(names) in \((slowest.milliseconds * 10).rounded() / 10) ms"
        }
        if !fenced.isEmpty { text += ". Fenced, because their leases are gone: \(fenced.map(\.host).joined(separator: ", "))" }
        return text
    }

    /// Reports each host that has not confirmed or cannot apply a grant. Returns 0, 3 if a host has
    /// not confirmed, or the exit status of `failure` if that is larger. `failure` is the error
    /// since the change was recorded. With `expectsShown`, a grant that no host can show is
    /// unconfirmed.
    static func exitStatus(
        of changes: [FleetChange], _ what: String, _ failure: GrantError? = nil, expectsShown: Bool = false
    ) -> Int32 {
        for change in changes {
            for host in change.hosts {
                if host.state == .waiting {
                    let until = host.until.map { "it may still serve: its lease ends at \(Timestamp.local($0)) unless it is renewed" }
                    Terminal.report(
                        GrantError(
                            .unconfirmed, "\(what) of “\(change.grant.name)” is recorded, but the host “\(host.host)” has not confirmed it",
                            cause: host.reason, advice: until))
                } else if let reason = host.reason {
                    Terminal.note("host “\(host.host)”: \(reason)")
                }
            }
        }
        if let failure { Terminal.report(failure) }
        var isNowhere = false
        for change in changes where expectsShown && change.isShownNowhere {
            isNowhere = true
            Terminal.report(
                GrantError(
                    .unconfirmed, "\(what) of “\(change.grant.name)” is recorded, but no host can show it",
                    advice: "see the lines above: hosts that can show it later do so by themselves"))
        }
        return max(isNowhere ? 3 : 0, changes.allSatisfy(\.isConfirmed) ? 0 : 3, failure?.exitStatus ?? 0)
    }

    /// Prints which hosts the change concerns, and changes nothing.
    static func preview(_ grants: [FleetGrant], _ command: String, _ fleet: FleetStore, _ arguments: ParsedArguments) throws(GrantError)
        -> Int32
    {
        let hosts = try fleet.hosts().hosts
        let concerned = grants.map { grant in (grant, hosts.filter { grant.hosts.matches(host: $0.id, $0.labels) && $0.registered != nil })
        }
        if arguments.wantsJSON {
            let documents = concerned.map { grant, hosts in
                JSON.object(
                    json(grant) + [
                        (
                            "hosts",
                            .array(
                                hosts.map { .object([("host", .string($0.id)), ("state", .string($0.lease == nil ? "gone" : "live"))]) })
                        )
                    ])
            }
            try Terminal.print(JSON.array(documents).text)
            return 0
        }
        for (grant, hosts) in concerned {
            let names = hosts.map { $0.lease == nil ? "\($0.id) (not heard of)" : $0.id }
            try Terminal.print(
                "would \(command) \(Terminal.visible(grant.name.bytes)) (\(Terminal.visible(grant.place))) in the fleet's view "
                    + "\(Terminal.visible(grant.view.description)) on \(names.isEmpty ? "no host" : names.joined(separator: ", "))")
        }
        return 0
    }
}
