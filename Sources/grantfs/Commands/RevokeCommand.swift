import GrantAdministration
import GrantCommandLine
import GrantCommandSupport
import GrantModel

/// `grantfs revoke`
enum RevokeCommand {
    static func run(_ arguments: ParsedArguments) throws(GrantError) -> Int32 {
        if arguments.has("system") { return try revokeInSystem(arguments) }
        let timeout = try arguments.timeout()
        let grace = try arguments.text("grace").map { text throws(GrantError) in try Expiry.seconds(text, for: "grace") }
        let plan = try RevocationPlan(arguments)
        let administrator = GrantAdministrator.command(try arguments.openStore())
        let choice = try plan.choose(administrator)
        if arguments.has("dry-run") { return try choice.show(administrator, arguments) }
        if choice.needsQuestion, !arguments.has("yes"), !arguments.wantsJSON, !(try choice.isAgreed()) { return 1 }

        let progress = ProgressOutput(isJSON: arguments.wantsJSON)
        defer { progress.end() }
        Interruption.says("interrupted: nothing is withdrawn", status: 1)
        let graces = grace.map { administrator.prepareRevocation(of: choice.active, within: $0) { progress.show($0) } } ?? [:]
        let kept = KeptFilesReport(administrator.store)
        let changes = try administrator.revoke(
            choice.all, timeout: timeout, endsHolders: arguments.has("kill"), progress: { progress.show($0) },
            recorded: { Interruption.says(recorded(choice.all, "revoke"), status: 3) })
        Interruption.end()
        progress.end()
        // The grants of a view have the same mounts.
        var isNamed: Set<Int32> = []
        for mount in changes.flatMap(\.mounts) {
            for holder in mount.ended where isNamed.insert(holder.pid).inserted {
                let what = mount.isDead ? "held something of a mount whose daemon has died" : "kept a mount from confirming"
                Terminal.note("killed \(holder.pid) (\(Terminal.visible(holder.command))), which \(what)")
            }
        }
        for grant in choice.all {
            guard let grace = graces[grant.id], grace.answered < grace.asked else { continue }
            Terminal.note(
                "“\(Terminal.visible(grant.name.bytes))”: \(grace.asked - grace.answered) of \(grace.asked) presenters had not answered")
        }
        defer { kept.print() }
        return try report(changes, of: choice, graces, administrator, arguments, timeout)
    }

    private static func revokeInSystem(_ arguments: ParsedArguments) throws(GrantError) -> Int32 {
        if let option = ["path", "all", "grace", "dry-run", "kill"].first(where: { arguments.has($0) }) {
            throw GrantError(.usage, "revoke: --system and --\(option) do not go together")
        }
        let selectors = try arguments.selectors()
        if selectors.isEmpty { throw GrantError(.usage, "revoke: SELECTOR is missing") }
        let request = SystemRequest(
            .revoke, view: try arguments.view(), selectors: selectors.map(\.bytes), timeout: try arguments.timeout())
        return try SystemClient.run(request, verb: "revoked", arguments)
    }

    /// The message if the command is interrupted while it waits: the changes recorded already.
    static func recorded(_ grants: [Grant], _ command: String) -> String {
        let names = grants.map { "“\($0.name)”" }.joined(separator: ", ")
        return
            "interrupted: the withdrawal of \(names) is recorded and stays so, and each mount carries it out. "
            + "Some may not have done so yet (grantfs \(command) again waits for them)"
    }

    /// Grants that were revoked before are reported as such, and with --path only if a mount has yet to confirm one.
    private static func report(
        _ changes: [GrantChange], of choice: RevocationPlan.Choice, _ graces: [GrantID: RevocationGrace],
        _ administrator: GrantAdministrator, _ arguments: ParsedArguments, _ timeout: Double
    ) throws(GrantError) -> Int32 {
        let shown = changes.filter { !choice.unlisted.contains($0.grant.id) || !$0.isConfirmed }
        var overlaps: [GrantID: [Overlap]] = [:]
        for change in shown where !choice.wasRevoked(change.grant) {
            do throws(GrantError) {
                overlaps[change.grant.id] = try administrator.overlaps(with: change.grant, except: Set(changes.map(\.grant.id)))
            } catch {
                // The withdrawal is recorded, and the mounts have answered: what failed is this look.
                Terminal.note("whether other grants lead to the files of “\(change.grant.name)” is not known: \(error.description)")
            }
        }
        let status = try Confirmation.print(
            shown, { choice.wasRevoked($0) ? "was revoked already:" : "revoked" }, "the revocation", arguments: arguments
        ) { change in
            [OverlapText.json(overlaps[change.grant.id] ?? [])] + (graces[change.grant.id].map { [("grace", .object(json($0)))] } ?? [])
        }
        if arguments.wantsJSON { return status }
        if shown.isEmpty { Terminal.note("nothing was left to revoke: every such grant was revoked before") }
        for change in shown {
            if let text = OverlapText.left(of: change.grant, overlaps[change.grant.id] ?? []) { Terminal.note(text) }
        }
        return status
    }

    private static func json(_ grace: RevocationGrace) -> [(String, JSON)] {
        [
            ("asked", .unsigned(UInt64(grace.asked))), ("answered", .unsigned(UInt64(grace.answered))),
            ("milliseconds", .number(grace.milliseconds)),
        ]
    }
}
