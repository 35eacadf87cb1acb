import GrantCommandLine
import GrantCommandSupport
import GrantFleet
import GrantAdministration
import GrantFiles
import GrantModel
import GrantSystem

/// `fleet apply FILE`
enum FleetApply {
    static func run(_ arguments: ParsedArguments) throws(GrantError) -> Int32 {
        let timeout = try arguments.timeout()
        let now = Instant(nanoseconds: Clock.realtime)
        let declared = try GrantFileInput.declared(arguments.operands, isFleet: true)
        var wanted: [(grant: FleetGrant, place: String)] = []
        for item in declared.grants { wanted.append((try grant(item, now, arguments), item.place)) }
        let fleet = try arguments.openFleet()
        let (known, invalidEntries) = try fleet.grants()
        // An unreadable grant could be one of the declared ones.
        if let flaw = invalidEntries.first { throw flaw }
        let plan = try FleetPlan(wanted, views: declared.views, known: known, restores: arguments.has("restore"), now: now)
        let isDry = arguments.has("dry-run")
        let hosts = isDry ? try fleet.hosts().hosts : []
        if !arguments.wantsJSON { try show(plan, hosts, isDry) }
        if isDry {
            if arguments.wantsJSON { try Terminal.print(json(plan, [], hosts, isDry).text) }
            return 0
        }
        if !GrantFileInput.isWanted(takesAway: plan.steps.contains(where: \.takesAway), arguments) { return 1 }
        Interruption.says("interrupted: the changes made so far stay (grantfs fleet apply again makes the rest)", status: 3)
        let isTerminal = Terminal.hasColour(Terminal.standardError)
        let changes = try fleet.apply(plan, timeout: timeout) { done, all in
            if isTerminal { try? Terminal.print("\r\(done) of \(all) hosts", to: Terminal.standardError) }
        }
        if isTerminal { try? Terminal.print("\r\u{1B}[K", to: Terminal.standardError) }
        Interruption.end()
        if arguments.wantsJSON { try Terminal.print(json(plan, changes, hosts, isDry).text) }
        return FleetOutput.exitStatus(of: changes, "the change")
    }

    /// Converts a declared grant. `.invalidFile`, with the line.
    private static func grant(_ item: DeclaredGrant, _ now: Instant, _ arguments: ParsedArguments) throws(GrantError) -> FleetGrant {
        let path = String(decoding: item.path, as: UTF8.self)
        guard Array(path.utf8) == item.path, FleetGrant.isPath(path) else {
            throw GrantError(
                .invalidFile, "\(item.place): the path is not for a fleet",
                cause: "it has empty parts, “.” or “..”, or is not UTF-8")
        }
        let own = item.name?.bytes ?? path.split(separator: "/").last.map { Array($0.utf8) } ?? []
        guard let name = try? GrantName(chosen: own) else {
            throw GrantError(.invalidFile, "\(item.place): the grant needs a name", advice: "name = \"NAME\"")
        }
        let hosts: HostSelector
        do throws(GrantError) {
            hosts = try HostSelector(item.hosts ?? "all")
            try item.rules.requireFleet()
        } catch {
            throw GrantError(.invalidFile, "\(item.place): \(error.message)", cause: error.cause, advice: error.advice)
        }
        return FleetGrant(
            view: item.view, name: name, path: path, filesystem: item.filesystem,
            identity: try FleetGrants.identity(item.filesystem, path, arguments), access: item.access, expires: item.expires,
            coordination: item.coordination, rules: item.rules, hosts: hosts, created: now)
    }

    private static func show(_ plan: FleetPlan, _ hosts: [FleetHost], _ isDry: Bool) throws(GrantError) {
        var lines: [ApplyText.Line] = []
        for step in plan.steps {
            guard let (mark, difference, shade) = line(step) else { continue }
            var text = difference
            if isDry, let grant = given(step) {
                let names = concerned(grant, hosts).map(\.id)
                text += ", on \(names.isEmpty ? "no host" : names.joined(separator: ", "))"
            }
            lines.append(ApplyText.Line(view: step.place.view, mark: mark, name: step.place.name, text: text, shade: shade))
        }
        let kept = plan.steps.count { if case .keep = $0 { true } else { false } }
        try ApplyText.show(lines, changes: plan.steps.count(where: \.isChange), kept: kept)
    }

    private static func concerned(_ grant: FleetGrant, _ hosts: [FleetHost]) -> [FleetHost] {
        hosts.filter { $0.registered != nil && grant.hosts.matches(host: $0.id, $0.labels) }
    }

    /// The grant as it will be, or was if it is withdrawn.
    private static func given(_ step: FleetPlan.Step) -> FleetGrant? {
        switch step {
        case .create(let grant), .change(_, let grant), .replace(_, let grant), .withdraw(let grant), .keep(let grant): grant
        case .leave: nil
        }
    }

    /// Returns nil for an unchanged grant.
    private static func line(_ step: FleetPlan.Step) -> (mark: String, text: String, shade: Int)? {
        switch step {
        case .create(let grant): return ("+", described(grant), 32)
        case .change(let old, let new):
            var differences = Grant.differences(
                (old.access, old.expires, old.coordination), old.access == new.access ? nil : new.access,
                old.expires == new.expires ? nil : .some(new.expires), old.coordination == new.coordination ? nil : new.coordination)
            differences += old.rules.differences(to: new.rules).map { Terminal.visible($0) }
            if old.activation != new.activation { differences.append("active again") }
            return ("~", differences.joined(separator: ", "), 33)
        case .replace(let old, let new):
            return ("!", described(new) + ", instead of \(Terminal.visible(old.place)) for \(old.hosts)", 31)
        case .withdraw(let grant): return ("-", "\(Terminal.visible(grant.place)), withdrawn and forgotten", 31)
        case .keep: return nil
        case .leave(_, _, let reason): return ("?", reason, 33)
        }
    }

    private static func described(_ grant: FleetGrant) -> String {
        var text = "\(Terminal.visible(grant.place)) for \(grant.hosts), \(grant.access.rawValue)"
        if let expires = grant.expires { text += ", until \(Timestamp.local(expires))" }
        if grant.coordination != .advisory { text += ", \(grant.coordination.rawValue)" }
        for line in grant.rules.lines { text += ", \(line.name) " + Terminal.visible(line.patterns) }
        return text
    }

    private static func json(_ plan: FleetPlan, _ changes: [FleetChange], _ hosts: [FleetHost], _ isDry: Bool) -> JSON {
        .object([
            ("dryRun", .bool(isDry)), ("changed", .integer(Int64(plan.steps.count(where: \.isChange)))),
            ("grants", .array(plan.steps.map { .object(json($0, changes, hosts, isDry)) })),
        ])
    }

    private static func json(
        _ step: FleetPlan.Step, _ changes: [FleetChange], _ hosts: [FleetHost], _ isDry: Bool
    ) -> [(String, JSON)] {
        let action =
            switch step {
            case .create: "create"
            case .change: "change"
            case .replace: "replace"
            case .withdraw: "withdraw"
            case .keep: "keep"
            case .leave: "leave"
            }
        guard let grant = given(step) else {
            guard case .leave(let view, let name, let reason) = step else { return [] }
            return [
                ("action", .string(action)), ("view", .string(view.description)), ("name", .string(name.description)),
                ("reason", .string(reason)),
            ]
        }
        var members = [("action", JSON.string(action))] + FleetOutput.json(grant)
        if isDry {
            members.append(
                (
                    "hosts",
                    .array(
                        concerned(grant, hosts).map {
                            .object([("host", .string($0.id)), ("state", .string($0.lease == nil ? "gone" : "live"))])
                        })
                ))
        } else if let change = changes.last(where: { $0.grant.id == grant.id }) {
            members.append(("hosts", .array(change.hosts.map { FleetOutput.json($0) })))
        }
        return members
    }
}
