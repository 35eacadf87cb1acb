import GrantAdministration
import GrantModel

/// `grantfs revoke`
enum RevokeCommand {
    static let declaration = CommandDeclaration(
        "revoke", "Withdraws grants: on disk first, then in every mount of the view, whatever is held open.",
        operands: [OperandDeclaration("SELECTOR", isOptional: true, isRepeatable: true)],
        options: [
            CommonOptions.view,
            OptionDeclaration(
                "path", value: "DIR", help: "every grant, in every view, through which DIR can be reached: of DIR, of a parent, of a child",
                isRepeatable: true),
            OptionDeclaration(
                "grace", value: "TIME",
                help: "presenters are told first and asked to save, for so long at the most: 30s, 2m; nothing is withdrawn until then"),
            OptionDeclaration("kill", help: "kill the processes that hold something of a mount whose daemon has died"),
            CommonOptions.timeout, CommonOptions.json,
        ],
        notes: [
            CommonOptions.selectorNote,
            "When it returns 0, every mount has confirmed that nothing can be reached through the grant any more. It exits with 3 when "
                + "the withdrawal is recorded and some mount has not confirmed it within the timeout.",
            "A mount whose daemon has died has not confirmed as long as processes hold something of it; they are named. What each holds may be of "
                + "any grant of that mount: --kill ends them all.",
            "How far it is, should it take long, is shown on a terminal, and with --json on stderr, an object on each line.",
            "What no revocation can take back: bytes that a program has already copied to its own memory.",
        ],
        run: run)

    private static func run(_ arguments: ParsedArguments) throws(GrantError) -> Int32 {
        let view = try arguments.view()
        let timeout = try arguments.timeout()
        let grace = try arguments.text("grace").map { text throws(GrantError) in try Expiry.seconds(text, for: "grace") }
        let selectors = try arguments.selectors()
        let paths = arguments.options["path"] ?? []
        if selectors.isEmpty && paths.isEmpty {
            throw GrantError(.usage, "revoke: SELECTOR is missing", advice: "or give a directory with --path DIR")
        }
        if paths.contains([]) { throw GrantError(.usage, "the value of --path is empty") }
        if !paths.isEmpty && view != nil { throw GrantError(.usage, "--path withdraws in every view", advice: "leave --view out") }

        let administrator = GrantAdministrator.command(try arguments.openStore())
        var grants = try administrator.select(selectors, view: view)
        for path in paths {
            let reaching = try administrator.grants(reaching: path)
            if reaching.isEmpty {
                throw GrantError(.notFound, "no grant leads to “\(String(decoding: path, as: UTF8.self))”", advice: "nothing was revoked")
            }
            grants += reaching.filter { grant in !grants.contains { $0.id == grant.id } }
        }
        let progress = ProgressOutput(isJSON: arguments.wantsJSON)
        defer { progress.end() }
        let graces = grace.map { administrator.prepareRevocation(of: grants, within: $0) { progress.show($0) } } ?? [:]
        let changes = try administrator.revoke(grants, timeout: timeout, endsHolders: arguments.has("kill")) { progress.show($0) }
        progress.end()
        // The same mounts for each grant of a view.
        var isNamed: Set<Int32> = []
        for holder in changes.flatMap(\.mounts).flatMap(\.ended) where isNamed.insert(holder.pid).inserted {
            Terminal.note(
                "killed \(holder.pid) (\(Terminal.visible(holder.command))), which held something of a mount whose daemon has died")
        }
        for grant in grants {
            guard let grace = graces[grant.id], grace.answered < grace.asked else { continue }
            Terminal.note(
                "“\(Terminal.visible(grant.name.bytes))”: \(grace.asked - grace.answered) of \(grace.asked) presenters had not answered")
        }
        return try Confirmation.print(changes, "revoked", "the revocation", arguments: arguments, timeout: timeout) { change in
            graces[change.grant.id].map { [("grace", .object(json($0)))] } ?? []
        }
    }

    private static func json(_ grace: RevocationGrace) -> [(String, JSON)] {
        [
            ("asked", .unsigned(UInt64(grace.asked))), ("answered", .unsigned(UInt64(grace.answered))),
            ("milliseconds", .number(grace.milliseconds)),
        ]
    }
}
