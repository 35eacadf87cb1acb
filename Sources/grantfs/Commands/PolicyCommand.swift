import Glibc
import GrantAdministration
import GrantCommandLine
import GrantCommandSupport
import GrantFiles
import GrantModel

/// `grantfs policy`
enum PolicyCommand {
    static func check(_ arguments: ParsedArguments) throws(GrantError) -> Int32 {
        let policy = if let file = arguments.operands.first { try PolicyFiles.read(file: file) } else { try PolicyFiles.read() }
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

    static func explain(_ arguments: ParsedArguments) throws(GrantError) -> Int32 {
        let user = try arguments.text("user").map { text throws(GrantError) in try PolicyUser(named: text) } ?? PolicyUser(uid: getuid())
        let view = try arguments.view() ?? .standard
        let (path, access) = try arguments.marked(arguments.operands[0])
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
