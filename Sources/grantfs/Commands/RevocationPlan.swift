import Glibc
import GrantAdministration
import GrantCommandLine
import GrantCommandSupport
import GrantModel

/// The grants that `grantfs revoke` is to revoke.
struct RevocationPlan {
    private let view: ViewName?
    private let selectors: [Selector]
    private let paths: [[UInt8]]
    /// Every grant of the view, or of all.
    private let isOfAll: Bool

    /// Throws `.usage` for arguments that exclude each other.
    init(_ arguments: ParsedArguments) throws(GrantError) {
        view = try arguments.view()
        selectors = try arguments.selectors()
        paths = arguments.options["path"] ?? []
        isOfAll = arguments.has("all")
        if isOfAll, !selectors.isEmpty || !paths.isEmpty {
            throw GrantError(.usage, "revoke: --all withdraws everything", advice: "use --all without SELECTOR and --path")
        }
        if selectors.isEmpty, paths.isEmpty, !isOfAll {
            throw GrantError(.usage, "revoke: SELECTOR is missing", advice: "or give a directory with --path DIR, or --all")
        }
        if paths.contains([]) { throw GrantError(.usage, "the value of --path is empty") }
        if !paths.isEmpty && view != nil { throw GrantError(.usage, "--path withdraws in every view", advice: "leave --view out") }
    }

    /// `.notFound`, `.ambiguous`.
    func choose(_ administrator: GrantAdministrator) throws(GrantError) -> Choice {
        if isOfAll { return Choice(named: [], found: try everything(administrator)) }
        let named = try administrator.select(selectors, view: view, to: "revoked")
        var found: [Grant] = []
        for path in paths {
            let reaching = try administrator.grants(reaching: path)
            if reaching.isEmpty {
                throw GrantError(
                    .notFound, "no grant leads to “\(String(decoding: path, as: UTF8.self))”",
                    advice: UnexpandedHome.advice(for: path) ?? "nothing was revoked")
            }
            found += reaching.filter { grant in !(named + found).contains { $0.id == grant.id } }
        }
        return Choice(named: named, found: found)
    }

    private func everything(_ administrator: GrantAdministrator) throws(GrantError) -> [Grant] {
        if let view { try administrator.requireKnown(view) }
        return try administrator.store.grants(view: view)
    }

    /// The selected grants, as they were before.
    struct Choice {
        let named: [Grant]
        /// Selected by --path or --all.
        let found: [Grant]

        /// Includes revoked ones: a mount may not have confirmed them yet, and is asked again.
        var all: [Grant] { named + found }
        var active: [Grant] { all.filter { $0.state != .revoked } }
        /// Selected by --path or --all only, and nothing changes for them.
        var unlisted: Set<GrantID> { Set(found.filter { $0.state == .revoked }.map(\.id)) }
        /// Whether more is revoked than the person who gave a path may expect.
        var needsQuestion: Bool {
            found.count { $0.state != .revoked } > 1 && isatty(STDIN_FILENO) == 1 && isatty(Terminal.standardError) == 1
        }

        func wasRevoked(_ grant: Grant) -> Bool { all.contains { $0.id == grant.id && $0.state == .revoked } }

        /// Asks on the terminal.
        func isAgreed() throws(GrantError) -> Bool {
            Terminal.note("\(active.count) grants would be revoked:")
            for grant in active { Terminal.note("  " + Choice.line(grant)) }
            if Terminal.asks("revoke all of them?") { return true }
            Terminal.note("nothing was revoked (revoke one by its name, or by its id)")
            return false
        }

        /// --dry-run
        func show(_ administrator: GrantAdministrator, _ arguments: ParsedArguments) throws(GrantError) -> Int32 {
            let shown = all.filter { !unlisted.contains($0.id) }
            var overlaps: [GrantID: [Overlap]] = [:]
            for grant in shown where grant.state != .revoked {
                overlaps[grant.id] = try administrator.overlaps(with: grant, except: Set(all.map(\.id)))
            }
            if arguments.wantsJSON {
                let documents = administrator.describe(shown).map {
                    JSON.object(
                        JSON.grant($0) + [
                            ("wouldRevoke", .bool($0.grant.state != .revoked)), OverlapText.json(overlaps[$0.grant.id] ?? []),
                        ])
                }
                try Terminal.print(JSON.array(documents).text)
                return 0
            }
            for grant in shown {
                try Terminal.print((grant.state == .revoked ? "is revoked already: " : "would revoke ") + Choice.line(grant))
            }
            if shown.isEmpty { Terminal.note("nothing is left to revoke: every such grant was revoked before") }
            for grant in shown {
                if let text = OverlapText.left(of: grant, overlaps[grant.id] ?? []) { Terminal.note(text) }
            }
            return 0
        }

        private static func line(_ grant: Grant) -> String {
            "\(Terminal.visible(grant.name.bytes)) (\(grant.id.description.prefix(12))) in view \(Terminal.visible(grant.view.description)): "
                + Terminal.visible(grant.bookmark.path)
        }
    }
}
