import GrantAdministration
import GrantCommandLine
import GrantModel

/// The output of `grantfs apply` about its plan.
package enum ApplyText {
    /// One difference. `shade` is its colour on a terminal: green gives, red takes away, yellow changes.
    package struct Line {
        package let view: ViewName
        package let mark: String
        package let name: GrantName
        package let text: String
        package let shade: Int

        package init(view: ViewName, mark: String, name: GrantName, text: String, shade: Int) {
            (self.view, self.mark, self.name, self.text, self.shade) = (view, mark, name, text, shade)
        }
    }

    package static func show(_ plan: ApplyPlan) throws(GrantError) {
        let kept = plan.steps.count { if case .keep = $0 { true } else { false } }
        let lines = plan.steps.filter { $0.isChange || isLeft($0) }.map { step in
            let (mark, name, text, shade) = line(step)
            return Line(view: step.place.view, mark: mark, name: name, text: text, shade: shade)
        }
        try show(lines, changes: plan.steps.count(where: \.isChange), kept: kept)
    }

    /// Prints a line for each difference, by view, and counts what stays.
    package static func show(_ lines: [Line], changes: Int, kept: Int) throws(GrantError) {
        let colour = Terminal.hasColour(Terminal.standardOutput)
        var view: ViewName?
        for line in lines {
            if line.view != view {
                view = line.view
                try Terminal.print("view " + Terminal.visible(line.view.description))
            }
            let shown = "  \(line.mark) \(Terminal.visible(line.name.bytes))  \(line.text)"
            try Terminal.print(colour ? "\u{1B}[\(line.shade)m\(shown)\u{1B}[0m" : shown)
        }
        if changes == 0 { return try Terminal.print("nothing to change: \(kept) as declared") }
        try Terminal.print("\(changes == 1 ? "1 change" : "\(changes) changes"), \(kept) as declared already")
    }

    private static func isLeft(_ step: ApplyPlan.Step) -> Bool { if case .leave = step { true } else { false } }

    private static func line(_ step: ApplyPlan.Step) -> (mark: String, name: GrantName, text: String, shade: Int) {
        let name = step.place.name
        switch step {
        case .create(let choice): return ("+", name, described(choice), 32)
        case .change(let grant, let change): return ("~", name, differences(grant, change).joined(separator: ", "), 33)
        case .replace(let grant, let choice):
            return (
                "!", name, described(choice) + ", another directory than the one granted, now \(Terminal.visible(grant.bookmark.path))", 31
            )
        case .withdraw(let grant): return ("-", name, Terminal.visible(grant.bookmark.path) + ", withdrawn and forgotten", 31)
        case .restore(let grant): return ("^", name, "\(Terminal.visible(grant.bookmark.path)), \(grant.state.rawValue) → active", 32)
        case .keep: return ("=", name, "", 0)
        case .leave(_, _, let reason): return ("?", name, reason, 33)
        }
    }

    private static func described(_ choice: GrantAdministrator.Choice) -> String {
        var text = "\(Terminal.visible(choice.proposal.bookmark.path)), \(choice.access.rawValue)"
        if let expires = choice.expires { text += ", until \(Timestamp.local(expires))" }
        if choice.coordination != .advisory { text += ", \(choice.coordination.rawValue)" }
        for line in choice.rules.lines { text += ", \(line.name) " + Terminal.visible(line.patterns) }
        return text
    }

    private static func differences(_ grant: Grant, _ change: ApplyPlan.Change) -> [String] {
        Grant.differences((grant.access, grant.expires, grant.coordination), change.access, change.expires, change.coordination)
            + (change.rules.map { grant.rules.differences(to: $0) } ?? []).map { Terminal.visible($0) }
    }

    package static func json(_ plan: ApplyPlan, _ changes: [GrantChange], isDry: Bool) -> JSON {
        .object([
            ("dryRun", .bool(isDry)), ("changed", .integer(Int64(plan.steps.count(where: \.isChange)))),
            ("grants", .array(plan.steps.map { .object(json($0, changes)) })),
        ])
    }

    private static func json(_ step: ApplyPlan.Step, _ changes: [GrantChange]) -> [(String, JSON)] {
        var members: [(String, JSON)] = []
        var id: GrantID?
        switch step {
        case .create(let choice):
            members = [("action", .string("create"))] + json(choice)
            id = changes.last { $0.grant.view == choice.view && $0.grant.name == choice.name }?.grant.id
        case .replace(let grant, let choice):
            members = [("action", .string("replace"))] + json(choice) + [("replaces", .string(grant.id.description))]
            id = changes.last { $0.grant.view == choice.view && $0.grant.name == choice.name }?.grant.id
        case .change(let grant, let change):
            members = [("action", .string("change"))] + json(grant, change)
            id = grant.id
        case .withdraw(let grant):
            members = [("action", .string("withdraw"))] + json(grant, .init())
            id = grant.id
        case .restore(let grant):
            members = [("action", .string("restore"))] + json(grant, .init())
            id = grant.id
        case .keep(let grant):
            members = [("action", .string("keep"))] + json(grant, .init())
            id = grant.id
        case .leave(let view, let name, let reason):
            members =
                [("action", .string("leave")), ("view", .string(view.description))] + JSON.members("name", name.bytes) + [
                    ("reason", .string(reason))
                ]
        }
        members.append(("id", id.map { .string($0.description) } ?? .null))
        if step.isChange, let id, let change = changes.last(where: { $0.grant.id == id }) { members.append(JSON.mounts(change)) }
        return members
    }

    private static func json(_ choice: GrantAdministrator.Choice) -> [(String, JSON)] {
        [("view", .string(choice.view.description))] + JSON.members("name", choice.name.bytes)
            + JSON.members("path", choice.proposal.bookmark.path) + [
                ("access", .string(choice.access.rawValue)), ("expires", JSON.time(choice.expires)),
                ("coordination", .string(choice.coordination.rawValue)), JSON.rules(choice.rules),
            ]
    }

    /// The changed grant.
    private static func json(_ grant: Grant, _ change: ApplyPlan.Change) -> [(String, JSON)] {
        [("view", .string(grant.view.description))] + JSON.members("name", grant.name.bytes) + JSON.members("path", grant.bookmark.path) + [
            ("access", .string((change.access ?? grant.access).rawValue)), ("expires", JSON.time(change.expires ?? grant.expires)),
            ("coordination", .string((change.coordination ?? grant.coordination).rawValue)), JSON.rules(change.rules ?? grant.rules),
        ]
    }
}
