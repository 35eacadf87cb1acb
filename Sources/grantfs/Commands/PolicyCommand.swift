import Glibc
import GrantAdministration
import GrantCommandLine
import GrantFiles
import GrantModel

/// `grantfs policy`
enum PolicyCommand {
    static let declaration = CommandDeclaration(
        "policy", "Checks the administrator's policy, and explains which line decides about a grant.",
        operands: [OperandDeclaration("ACTION", choices: ["check", "explain"]), OperandDeclaration("PATH", isOptional: true)],
        options: [
            OptionDeclaration("view", value: "V", help: "explain: to which view (default: “default”)"),
            OptionDeclaration("user", value: "U", help: "explain: the user who grants, by name or number (default: yourself)"),
            CommonOptions.readOnly("explain: for reading alone (also: PATH:ro)"), CommonOptions.access, CommonOptions.json,
        ],
        notes: [
            "check reads the files *.toml in \(PolicyFiles.directory), or the file that is named, which need not be "
                + "installed yet. Exit status: 1 when it could not be used. Oddities, such as an unknown user, are "
                + "reported.",
            "explain says whether a directory may be granted, and why. Exit status: 0 when it may, 1 when not.",
        ],
        run: run)

    private static func run(_ arguments: ParsedArguments) throws(GrantError) -> Int32 {
        let action = String(decoding: arguments.operands[0], as: UTF8.self)
        let path = arguments.operands.count > 1 ? arguments.operands[1] : nil
        switch (action, path) {
        case ("check", _):
            if let option = ["view", "user", "read-only", "access"].first(where: { arguments.has($0) }) {
                throw GrantError(.usage, "policy check: --\(option) is for explain")
            }
            return try check(path, arguments)
        case ("explain", let path?): return try explain(path, arguments)
        case ("explain", nil): throw GrantError(.usage, "policy explain: which directory is missing")
        default: throw GrantError(.usage, "policy: invalid action “\(action)”", advice: "use check or explain")
        }
    }

    private static func check(_ file: [UInt8]?, _ arguments: ParsedArguments) throws(GrantError) -> Int32 {
        let policy = if let file { try PolicyFiles.read(file: file) } else { try PolicyFiles.read() }
        let oddities = policy.map { PolicyWarning.all(in: $0) } ?? []
        if arguments.wantsJSON {
            let keys: [(String, JSON)] = [
                ("there", .bool(policy != nil)), ("files", .array((policy?.files ?? []).map { .string($0) })),
                ("rules", .integer(Int64(policy?.rules.count ?? 0))), ("never", .integer(Int64(policy?.never.count ?? 0))),
                ("flaws", .array((policy?.flaws ?? []).map { .string($0.description) })),
                (
                    "odd",
                    .array(oddities.map { .object([("rule", .string($0.place)), ("message", .string($0.message))]) })
                ),
            ]
            try Terminal.print(JSON.object(keys).text)
            return policy?.flaws.isEmpty == false ? 1 : 0
        }
        for flaw in policy?.flaws ?? [] { Terminal.report(flaw) }
        for oddity in oddities { Terminal.note("\(oddity.place): \(oddity.message)") }
        guard let policy else {
            try Terminal.print("there is no policy in \(PolicyFiles.directory): every user may grant")
            return 0
        }
        let files = policy.files.count == 1 ? policy.files[0] : "\(policy.files.count) files"
        try Terminal.print(
            "\(Terminal.visible(files)): \(policy.rules.count) rules of allowed directories, \(policy.never.count) paths never granted")
        return policy.flaws.isEmpty ? 0 : 1
    }

    private static func explain(_ word: [UInt8], _ arguments: ParsedArguments) throws(GrantError) -> Int32 {
        let user = try arguments.text("user").map { text throws(GrantError) in try PolicyUser(named: text) } ?? PolicyUser(uid: getuid())
        let view = try arguments.view() ?? .standard
        let (path, access) = try arguments.marked(word)
        let directory = try GrantAdministrator.judgedPath(of: path, probe: .command)
        let judge = try PolicyFiles.read().map { policy throws(GrantError) in try PolicyJudge(policy, for: user, probe: .command) }
        let verdict = judge?.verdict(on: directory, view: view, access: access) ?? .withoutPolicy
        if arguments.wantsJSON {
            var keys: [(String, JSON)] = [("allowed", .bool(verdict.isAllowed))] + JSON.members("directory", directory)
            keys += [("view", .string(view.description)), ("access", .string(access.rawValue)), ("uid", .unsigned(UInt64(user.uid)))]
            keys.append(("user", user.name.map { .string($0) } ?? .null))
            keys += [("rule", verdict.place.map { .string($0) } ?? .null), ("reason", .string(verdict.reason))]
            try Terminal.print(JSON.object(keys).text)
        } else {
            let who = Terminal.visible(user.name ?? "user \(user.uid)")
            let what = "grant \(Terminal.visible(directory)) to the view “\(Terminal.visible(view.description))”, \(access.rawValue)"
            try Terminal.print("\(who) \(verdict.isAllowed ? "may" : "may not") \(what)")
            try Terminal.print("  " + Terminal.visible(verdict.place.map { "\($0): " } ?? "") + Terminal.visible(verdict.reason))
        }
        return verdict.isAllowed ? 0 : 1
    }
}
