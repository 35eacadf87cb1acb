import GrantAdministration
import GrantCommandLine
import GrantCommandSupport
import GrantModel
import GrantStore

/// `grantfs why`
enum WhyCommand {
    static func run(_ arguments: ParsedArguments) throws(GrantError) -> Int32 {
        guard let path = arguments.operands.first, !RunReport.isName(path) else { return try WhyRun.run(arguments) }
        if path.isEmpty { throw GrantError(.usage, "why: PATH is empty") }
        let store = try arguments.openStoreIfThere()
        let view = try arguments.knownView(in: store)
        guard let store else { return try show([], [], path, arguments) }
        let explanations = try GrantAdministrator.command(store).explain(path, view: view)
        return try show(explanations, try store.servedMounts(), path, arguments)
    }

    private static func show(
        _ explanations: [PathExplanation], _ mounts: [MountRecord], _ path: [UInt8], _ arguments: ParsedArguments
    ) throws(GrantError) -> Int32 {
        if arguments.wantsJSON {
            try Terminal.print(JSON.array(explanations.map { .object(WhyText($0, mounts).members) }).text)
        } else if explanations.isEmpty {
            throw GrantError(
                .notFound, "no grant leads to “\(String(decoding: path, as: UTF8.self))”",
                advice: UnexpandedHome.advice(for: path) ?? "grantfs grant \(ShellWord.quoted(path)) makes one")
        } else {
            for explanation in explanations { for line in WhyText(explanation, mounts).lines { try Terminal.print(line) } }
        }
        return explanations.contains { ![.hidden, .unavailable].contains($0.verdict) } ? 0 : 1
    }
}

/// What `why` prints of one grant.
private struct WhyText {
    private let explanation: PathExplanation
    /// The path in each mount that shows the grant.
    private let paths: [[UInt8]]
    private var described: GrantDescription { explanation.described }
    private var grant: Grant { explanation.described.grant }
    /// The grant, for a command that changes it.
    private var selector: String { grant.fleetActivation == nil ? id : "\(ShellWord.quoted(grant.name.bytes)) --fleet" }
    private var id: String { String(grant.id.description.prefix(12)) }

    init(_ explanation: PathExplanation, _ mounts: [MountRecord]) {
        self.explanation = explanation
        let grant = explanation.described.grant
        paths = mounts.filter { $0.shows(grant.view) }.map { mount in
            let top = mount.shown.path(of: grant).names.reduce(mount.mountpoint) { CanonicalPath.join($0, $1.bytes) }
            return explanation.place.isEmpty ? top : CanonicalPath.join(top, explanation.place)
        }
    }

    var lines: [String] {
        var lines = ["\(Terminal.visible(grant.name.bytes)) (\(id)) in view \(Terminal.visible(grant.view.description)): \(verdict)"]
        lines += paths.map { "  at \(Terminal.visible($0)), for each program in this mount" }
        if paths.isEmpty { lines.append("  mounted nowhere") }
        if explanation.mayContainProtected {
            lines.append("  a rule may protect names below: it cannot be renamed or removed while one is there")
        }
        if let change { lines.append("  to change this: \(change)") }
        return lines
    }

    private var verdict: String {
        switch explanation.verdict {
        case .readWrite: "read-write, no rule concerns it"
        case .readOnly: "read-only, changes fail with EROFS"
        case .protected: "protected\(rule), changes fail with EROFS"
        case .hidden: "hidden\(rule), a lookup fails with ENOENT"
        case .unavailable:
            described.state == .unavailable
                ? "unavailable: \(Terminal.visible(described.reason ?? "its directory is not found"))"
                : "\(described.shownState), everything fails with EACCES"
        }
    }

    /// The deciding rule, and the part of the path that it matches.
    private var rule: String {
        guard let decision = explanation.decision else { return "" }
        let isAbove = decision.place != explanation.place
        let place = isAbove ? " at “\(Terminal.visible(decision.place))”" : ""
        guard let pattern = decision.pattern else { return ", because no pattern of --\(decision.list.rawValue) matches\(place)" }
        return " by --\(decision.list.rawValue) “\(pattern)”\(place)"
    }

    /// The command that permits what this grant does not.
    private var change: String? {
        switch explanation.verdict {
        case .readWrite: return nil
        case .readOnly: return "grantfs set \(selector) --access read-write"
        case .protected, .hidden:
            guard let decision = explanation.decision, let rules = explanation.permitting else { return nil }
            return "grantfs set \(selector)" + patterns(decision, in: rules)
        case .unavailable where described.isOffered: return "grantfs set \(selector) --access \(described.grant.access.rawValue)"
        case .unavailable: return described.state == .unavailable ? "grantfs repair \(id)" : "grantfs restore \(selector)"
        }
    }

    /// The list that decides, changed for this path.
    private func patterns(_ decision: RuleDecision, in rules: GrantRules) -> String {
        let list =
            switch decision.list {
            case .hide: rules.hide
            case .protect: rules.protect
            case .only: rules.only
            }
        return (list.isEmpty ? ["''"] : list.map { ShellWord.quoted($0.text) }).map { " --\(decision.list.rawValue) \($0)" }.joined()
    }

    var members: [(String, JSON)] {
        let rule = explanation.decision.map { decision in
            JSON.object(
                [("list", .string(decision.list.rawValue))]
                    + (decision.pattern.map { JSON.members("pattern", $0.text) } ?? [("pattern", .null)])
                    + JSON.members("place", decision.place))
        }
        let hasOthers = paths.contains { !Bytes.isUTF8($0) }
        return JSON.grant(described) + JSON.members("place", explanation.place) + [
            ("verdict", .string(explanation.verdict.rawValue)), ("rule", rule ?? .null),
            ("mayContainProtected", .bool(explanation.mayContainProtected)),
            ("paths", .array(paths.map { .string(String(decoding: $0, as: UTF8.self)) })),
        ] + (hasOthers ? [("pathsHex", .array(paths.map { .string(Hexadecimal.text($0)) }))] : []) + [
            ("change", change.map { .string($0) } ?? .null)
        ]
    }
}
