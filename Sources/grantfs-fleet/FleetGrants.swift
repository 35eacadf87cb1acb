import GrantCommandLine
import GrantCommandSupport
import GrantFleet
import GrantAdministration
import GrantModel
import GrantStore
import GrantSystem

/// `grant`, `list`, `revoke`, `restore`, `remove` and `set` with `--fleet`.
enum FleetGrants {
    static func grant(_ arguments: ParsedArguments) throws(GrantError) -> Int32 {
        try arguments.refuse(["tag"])
        let timeout = try arguments.timeout()
        let now = Instant(nanoseconds: Clock.realtime)
        let expires = try arguments.text("expires").map { text throws(GrantError) in try Expiry.parse(text, now: now) }
        let (view, name, hosts) = (try arguments.view() ?? .standard, try arguments.name(), try arguments.selector())
        let (filesystem, rules) = (try arguments.filesystem(), try arguments.rules())
        try rules.requireFleet()
        guard arguments.operands.count == 1 || name == nil else { throw GrantError(.usage, "--name is for one directory") }
        var wanted: [FleetGrant] = []
        for word in arguments.operands {
            // What exists on this machine says nothing about the hosts.
            let (operand, access) = try arguments.marked(word, isLiteral: true)
            let path = try path(operand)
            let own = path.split(separator: "/").last.map { Array($0.utf8) }
            guard let chosen = name ?? own.flatMap({ try? GrantName(chosen: $0) }) else {
                throw GrantError(.usage, "the grant needs a name", cause: "the directory has none of its own", advice: "--name NAME")
            }
            wanted.append(
                FleetGrant(
                    view: view, name: chosen, path: path, filesystem: filesystem,
                    identity: try identity(filesystem, path, arguments), access: access,
                    expires: expires, rules: rules, hosts: hosts, created: now))
        }
        let fleet = try reading("granted") { () throws(GrantError) in try arguments.openFleet(within: timeout) }
        if arguments.has("dry-run") { return try FleetOutput.preview(wanted, "grant", fleet, arguments) }
        var outcome = FleetStore.Outcome(grants: [], revision: 0)
        for grant in wanted {
            var made = try same(as: grant, fleet)
            if made == nil { made = try fleet.create(grant) }
            guard let made else { continue }
            outcome.grants.append(made)
            outcome.revision = max(outcome.revision, made.revision)
        }
        let (changes, failure) = confirmations(outcome, "granted", fleet, arguments, timeout)
        if arguments.wantsJSON { return try FleetOutput.show(changes, "granted", "the grant", arguments, failure: failure) }
        for change in changes { try Terminal.print(change.grant.id.description) }
        return FleetOutput.exitStatus(of: changes, "the grant", failure, expectsShown: true)
    }

    /// Returns the identity of a directory of a shared filesystem, if this machine has it mounted.
    /// Otherwise each host takes the first directory that it finds, and a remark reports that.
    static func identity(_ filesystem: FilesystemName?, _ path: String, _ arguments: ParsedArguments) throws(GrantError) -> FileIdentity? {
        guard let filesystem else { return nil }
        let place = SharedDirectory(filesystem: filesystem, path: path)
        let found = try GrantAdministrator.identity(of: place, store: try arguments.storeDirectory(), probe: .command)
        if found == nil {
            Terminal.note(
                "\(Terminal.visible(filesystem.description)) is not mounted here, so no host can tell whether its "
                    + "\(Terminal.visible(path)) is yours: each takes the directory that it finds")
        }
        return found
    }

    /// Returns an equal grant that exists already.
    private static func same(as grant: FleetGrant, _ fleet: FleetStore) throws(GrantError) -> FleetGrant? {
        guard let own = try fleet.grants().grants.first(where: { $0.view == grant.view && $0.name == grant.name }) else { return nil }
        guard own.isOfSameDirectory(as: grant), own.access == grant.access, own.hosts == grant.hosts, own.expires == grant.expires,
            own.rules == grant.rules,
            own.state(at: grant.created) == .active
        else {
            throw GrantError(
                .alreadyExists, "the fleet's view “\(grant.view)” has a grant named “\(grant.name)” already",
                cause: "it is of \(own.place), for \(own.hosts), \(own.access.rawValue)\(own.rules.isEmpty ? "" : ", with rules") "
                    + "and \(own.state(at: grant.created).rawValue)",
                advice: "choose another with --name, or remove that one")
        }
        Terminal.note("“\(grant.name)” is granted to the fleet's view “\(grant.view)” already, in the same way")
        return own
    }

    private static func path(_ operand: [UInt8]) throws(GrantError) -> String {
        var text = try ParsedArguments.text(operand, "the directory")
        while text.count > 1, text.hasSuffix("/") { text.removeLast() }
        guard text.hasPrefix("/") else {
            throw GrantError(
                .usage, "“\(text)” cannot be granted to a fleet", cause: "it is not an absolute path",
                advice: "name it as it is on the hosts")
        }
        guard FleetGrant.isPath(text) else {
            throw GrantError(.usage, "“\(text)” cannot be granted to a fleet", cause: "it has empty parts, “.” or “..”")
        }
        return text
    }

    static func list(_ arguments: ParsedArguments) throws(GrantError) -> Int32 {
        try arguments.refuse(["system", "all-users"])
        if !arguments.operands.isEmpty { return try FleetGrantReport.list(arguments) }
        let (view, isAll) = (try arguments.view(), arguments.has("all"))
        let fleet = try arguments.openFleet()
        let (all, invalidEntries) = try fleet.grants()
        for flaw in invalidEntries { Terminal.report(flaw) }
        let now = Instant(nanoseconds: Clock.realtime)
        let shown = all.filter { (view == nil || $0.view == view) && (isAll || $0.state(at: now) == .active) }
        if arguments.wantsJSON {
            try Terminal.print(JSON.array(shown.map { .object(FleetOutput.json($0)) }).text)
            return 0
        }
        if shown.isEmpty {
            Terminal.note(
                all.isEmpty
                    ? "the fleet has no grants" : "nothing to show: \(all.count) are revoked, expired or of other views (--all)")
            return 0
        }
        let hasRules = shown.contains { !$0.rules.isEmpty }
        var table = Table(
            header: ["NAME", "VIEW", "ACCESS", "STATE", "EXPIRES", "HOSTS"] + (hasRules ? ["RULES"] : []) + ["ID", "PATH"])
        for grant in shown {
            table.add(
                [
                    Terminal.visible(grant.name.bytes), Terminal.visible(grant.view.description), grant.access.rawValue,
                    grant.state(at: now).rawValue, grant.expires.map { Timestamp.local($0) } ?? "never", grant.hosts.description,
                ] + (hasRules ? [grant.rules.counts] : []) + [
                    String(grant.id.description.prefix(12)), Terminal.visible(grant.place),
                ], grant.state(at: now) == .active ? nil : .gone)
        }
        try Terminal.print(table.text(colour: Terminal.hasColour(Terminal.standardOutput)))
        return 0
    }

    static func revoke(_ arguments: ParsedArguments) throws(GrantError) -> Int32 {
        try arguments.refuseSystem()
        try arguments.refuse(["path", "grace", "kill"])
        return try change(arguments, "revoked", "revoke", "the revocation", withdraws: true) { $0 = $0.revoked }
    }

    static func restore(_ arguments: ParsedArguments) throws(GrantError) -> Int32 {
        try arguments.refuseSystem()
        let now = Instant(nanoseconds: Clock.realtime)
        return try change(arguments, "restored", "restore", "the restoration") { $0 = $0.restored(at: now) }
    }

    static func remove(_ arguments: ParsedArguments) throws(GrantError) -> Int32 {
        try change(arguments, "removed", "remove", "the removal", withdraws: true, forgets: true) { $0 = $0.revoked }
    }

    static func set(_ arguments: ParsedArguments) throws(GrantError) -> Int32 {
        let settings = try NewSettings(arguments)
        return try change(arguments, "changed", "set", "the change") { (grant) throws(GrantError) in
            if let access = settings.access { grant.access = access }
            if let name = settings.name { grant.name = name }
            if let expires = settings.expires { grant.expires = expires }
            if let coordination = settings.coordination { grant.coordination = coordination }
            if let rules = settings.rules {
                grant.rules = try rules.result(of: grant.rules)
                try grant.rules.requireFleet()
            }
        }
    }

    private static func change(
        _ arguments: ParsedArguments, _ event: String, _ command: String, _ what: String, withdraws: Bool = false, forgets: Bool = false,
        _ body: (inout FleetGrant) throws(GrantError) -> Void
    ) throws(GrantError) -> Int32 {
        let (timeout, view) = (try arguments.timeout(), try arguments.view())
        let (fleet, all) = try reading(event) { () throws(GrantError) in
            let fleet = try arguments.openFleet(within: timeout)
            return (fleet, try fleet.grants().grants)
        }
        let grants = try chosen(arguments, view, event, all)
        if arguments.has("dry-run") { return try FleetOutput.preview(grants, command, fleet, arguments) }
        let outcome = try fleet.change(grants, event, withdraws: withdraws) { (grant) throws(GrantError) in
            var grant = grant
            try body(&grant)
            return grant
        }
        let names = outcome.grants.map { "“\($0.name)”" }.joined(separator: ", ")
        if outcome.unchanged.count < outcome.grants.count {
            Interruption.says(
                "interrupted: \(what) of \(names) is recorded and stays so. Some hosts may not have confirmed it yet", status: 3)
        }
        var (changes, failure) = confirmations(outcome, event, fleet, arguments, timeout)
        Interruption.end()
        if forgets, failure == nil {
            do throws(GrantError) { try fleet.forget(outcome.grants) } catch { failure = error }
        }
        return try FleetOutput.show(changes, event, what, arguments, unchanged: outcome.unchanged, failure: failure)
    }

    /// The error says that nothing was changed.
    private static func reading<Result>(_ event: String, _ body: () throws(GrantError) -> Result) throws(GrantError) -> Result {
        do throws(GrantError) { return try body() } catch { throw error.saying("nothing was \(event)") }
    }

    private static func chosen(
        _ arguments: ParsedArguments, _ view: ViewName?, _ event: String, _ all: [FleetGrant]
    ) throws(GrantError) -> [FleetGrant] {
        if arguments.has("all") {
            guard arguments.operands.isEmpty else {
                throw GrantError(.usage, "\(arguments.command): --all is for everything", advice: "use --all without SELECTOR")
            }
            return all.filter { view == nil || $0.view == view }
        }
        do throws(GrantError) {
            return try select(arguments.operands, view, all)
        } catch {
            throw error.code == .usage ? error : error.saying("nothing was \(event)")
        }
    }

    /// Returns the grants with the answers of hosts, or without answers and with the reason if the
    /// hosts cannot be read.
    private static func confirmations(
        _ outcome: FleetStore.Outcome, _ event: String, _ fleet: FleetStore, _ arguments: ParsedArguments, _ timeout: Double
    ) -> (changes: [FleetChange], failure: GrantError?) {
        let isTerminal = Terminal.hasColour(Terminal.standardError)
        defer { if isTerminal { try? Terminal.print("\r\u{1B}[K", to: Terminal.standardError) } }
        do throws(GrantError) {
            let changes = try fleet.awaitHosts(outcome, timeout: timeout) { done, all in
                if isTerminal { try? Terminal.print("\r\(event): \(done) of \(all) hosts", to: Terminal.standardError) }
            }
            return (changes, nil)
        } catch {
            return (outcome.grants.map { FleetChange(grant: $0, hosts: []) }, error)
        }
    }

    /// Selects grants by name, id, or a prefix of the id, each once. Throws `.usage`, `.notFound`
    /// or `.ambiguous`.
    static func select(_ operands: [[UInt8]], _ view: ViewName?, _ all: [FleetGrant]) throws(GrantError) -> [FleetGrant] {
        if operands.isEmpty { throw GrantError(.usage, "SELECTOR is missing", advice: "grantfs list --fleet shows the grants") }
        let candidates = all.filter { view == nil || $0.view == view }
        var result: [FleetGrant] = []
        for operand in operands {
            let text = String(decoding: operand, as: UTF8.self)
            let isPrefix = text.utf8.count >= Selector.shortestPrefix && text.utf8.allSatisfy { Hexadecimal.value(of: $0) != nil }
            let found = candidates.filter { $0.name.bytes == operand || (isPrefix && $0.id.description.hasPrefix(text.lowercased())) }
            guard let first = found.first else {
                let near = Suggestion.nearest(to: text, among: Set(candidates.map(\.name.description)).sorted())
                throw GrantError(
                    .notFound, "the fleet has no grant “\(text)”",
                    advice: near.map { "did you mean “\($0)”?" } ?? "grantfs list --fleet --all shows them")
            }
            guard found.count == 1 else {
                throw GrantError(
                    .ambiguous, "“\(text)” could be several grants of the fleet", advice: "name the view with --view, or use the id")
            }
            if !result.contains(first) { result.append(first) }
        }
        return result
    }
}
