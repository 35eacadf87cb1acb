import Glibc
import GrantAdministration
import GrantCommandLine
import GrantCommandSupport
import GrantModel
import GrantStore
import GrantSystem

/// `grantfs list`
enum ListCommand {
    static func run(_ arguments: ParsedArguments) throws(GrantError) -> Int32 {
        if !arguments.operands.isEmpty { return try showOne(arguments) }
        if arguments.has("system") {
            if let option = ["all", "all-users"].first(where: { arguments.has($0) }) {
                throw GrantError(.usage, "list: --system and --\(option) do not go together")
            }
            return try SystemClient.run(SystemRequest(.list, view: try arguments.view(), timeout: 0), verb: "", arguments)
        }
        if arguments.has("all-users") {
            if arguments.has("store") { throw GrantError(.usage, "list: --all-users is for every store", advice: "leave --store out") }
            guard geteuid() == 0 else { throw GrantError(.permission, "list: --all-users is for root") }
            return try InventoryText.show(
                try MachineInventory.all(), view: try arguments.view(), all: arguments.has("all"), asJSON: arguments.wantsJSON)
        }
        let store = try arguments.openStoreIfThere()
        let view = try arguments.knownView(in: store)
        let grants = try store.map { store throws(GrantError) in
            try GrantAdministrator.command(store).list(view: view, all: arguments.has("all"))
        }
        let forbidden = PolicyText.forbidden(store, grants ?? [])
        if arguments.wantsJSON {
            try Terminal.print(JSON.array(json(grants ?? [], forbidden, store)).text)
            return 0
        }
        guard let store, let grants else {
            Terminal.note("there is no store in \(try arguments.storeDirectory()) yet: nothing is granted (grantfs grant DIR makes one)")
            return 0
        }
        if !grants.isEmpty { try show(grants, commands(grants, store)) }
        for grant in grants {
            guard let reason = grant.reason else { continue }
            Terminal.note("“\(grant.grant.name)” is unavailable: \(reason)")
        }
        PolicyText.note(forbidden, grants)
        try reportHidden(store, view, shown: grants)
        return 0
    }

    private static func showOne(_ arguments: ParsedArguments) throws(GrantError) -> Int32 {
        if let option = ["system", "all-users"].first(where: { arguments.has($0) }) {
            throw GrantError(.usage, "list: NAME and --\(option) do not go together")
        }
        let (view, selectors) = (try arguments.view(), try arguments.selectors())
        let store = try arguments.openStore()
        let administrator = GrantAdministrator.command(store)
        let described = administrator.describe(try administrator.select(selectors, view: view))[0]
        let forbidden = PolicyText.forbidden(store, [described])
        if arguments.wantsJSON {
            try Terminal.print(JSON.array(json([described], forbidden, store)).text)
            return 0
        }
        try GrantDetails(described).printAll(store)
        PolicyText.note(forbidden, [described])
        return 0
    }

    private static func json(_ grants: [GrantDescription], _ forbidden: PolicyText.Forbidden, _ store: GrantStore?) -> [JSON] {
        let commands = commands(grants, store)
        return grants.map { grant in
            let command = commands[grant.grant.view].map { JSON.string($0) } ?? .null
            return .object(JSON.grant(grant) + [PolicyText.member(grant, forbidden), ("command", command)])
        }
    }

    /// Returns the commands of `grantfs run` and `grantfs bwrap` whose views these are.
    private static func commands(_ grants: [GrantDescription], _ store: GrantStore?) -> [ViewName: String] {
        var commands: [ViewName: String] = [:]
        for view in Set(grants.map(\.grant.view)) where TemporaryMount.isLabel(view.description) {
            commands[view] = (try? store?.command(of: view)) ?? nil
        }
        return commands
    }

    private static func show(_ grants: [GrantDescription], _ commands: [ViewName: String]) throws(GrantError) {
        let hasFleet = grants.contains { $0.grant.fleetActivation != nil }
        let hasRules = grants.contains { !$0.grant.rules.isEmpty }
        var table = Table(
            header: ["NAME", "VIEW", "ACCESS", "STATE", "EXPIRES"] + (hasFleet ? ["BY"] : []) + (hasRules ? ["RULES"] : []) + [
                "ID", "PATH",
            ] + (commands.isEmpty ? [] : ["COMMAND"]))
        for grant in grants {
            table.add(
                [
                    Terminal.visible(grant.grant.name.bytes), Terminal.visible(grant.grant.view.description), grant.grant.access.rawValue,
                    state(grant), grant.grant.expires.map { Timestamp.local($0) } ?? "never",
                ] + (hasFleet ? [grant.grant.fleetActivation == nil ? "this host" : "the fleet"] : [])
                    + (hasRules ? [grant.grant.rules.counts] : []) + [
                        String(grant.grant.id.description.prefix(12)), Terminal.visible(grant.path),
                    ] + (commands.isEmpty ? [] : [VisibleText.cut(Terminal.visible(commands[grant.grant.view] ?? ""), to: 60)]),
                shade(grant.state))
        }
        try Terminal.print(table.text(colour: Terminal.hasColour(Terminal.standardOutput)))
    }

    static func shade(_ state: GrantState) -> Table.Shade? {
        switch state {
        case .active: nil
        case .revoked: .gone
        case .expired, .unavailable: .attention
        }
    }

    /// Prints that there are none, and how many only --all shows.
    private static func reportHidden(_ store: GrantStore, _ view: ViewName?, shown: [GrantDescription]) throws(GrantError) {
        let now = Instant(nanoseconds: Clock.realtime)
        let ids = Set(shown.map(\.grant.id))
        let hidden = try store.grants(view: view).filter { !ids.contains($0.id) }
        let counts = [RecordedState.revoked, .expired].compactMap { state -> String? in
            let count = hidden.count { $0.state(at: now) == state }
            return count == 0 ? nil : "\(count) \(state.rawValue)"
        }
        let place = view.map { " to the view “\($0)”" } ?? ""
        if !counts.isEmpty {
            Terminal.note(
                (shown.isEmpty ? "nothing is granted\(place) now; " : "")
                    + "not shown: \(counts.joined(separator: ", ")) (--all shows them)")
        } else if shown.isEmpty {
            Terminal.note("nothing is granted\(place) (grantfs grant\(view.map { " --view \($0)" } ?? "") DIR)")
        }
    }

    /// The state, with remarks about the bookmark.
    static func state(_ grant: GrantDescription) -> String {
        grant.finding == .ok ? grant.shownState : "\(grant.shownState) (\(grant.finding.rawValue))"
    }
}
