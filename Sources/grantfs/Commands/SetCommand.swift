import GrantAdministration
import GrantCommandLine
import GrantModel
import GrantSystem

/// `grantfs set`
enum SetCommand {
    static let declaration = CommandDeclaration(
        "set", "Changes a grant, live in every mount of its view.",
        operands: [OperandDeclaration("SELECTOR")],
        options: [
            CommonOptions.view,
            CommonOptions.access, CommonOptions.readOnly("as --access read-only"),
            OptionDeclaration("name", value: "N", help: "the new name in the view"),
            OptionDeclaration("expires", value: "WHEN", help: "90s, 2h, 7d, an ISO 8601 time, or “never”"),
            OptionDeclaration(
                "coordination", value: "C", help: "advisory: claims bind claimants, mandatory: every process in a mount",
                choices: ["advisory", "mandatory"]),
        ] + RuleOptions.of("the directory") + [
            OptionDeclaration("no-rules", help: "remove the patterns of all three lists"),
            FleetOptions.fleet, FleetOptions.dryRun, CommonOptions.timeout, CommonOptions.json,
        ],
        notes: [
            CommonOptions.selectorNote, RuleOptions.note,
            "Each list of patterns that is given replaces that list, an empty PATTERN alone empties it, and the others stay.",
            "Narrowing is a partial revocation: handles opened before are narrowed too.",
        ],
        run: run)

    private static func run(_ arguments: ParsedArguments) throws(GrantError) -> Int32 {
        let (view, timeout, selectors) = (try arguments.view(), try arguments.timeout(), try arguments.selectors())
        let (access, name, expires) = (try arguments.access(), try arguments.name(), try expiry(arguments))
        let (coordination, rules) = (try coordination(arguments), try rules(arguments))
        if access == nil, name == nil, expires == nil, coordination == nil, rules == nil {
            throw GrantError(
                .usage, "set: no change is given",
                advice: "use --access, --name, --expires, --coordination, --hide, --protect, --only or --no-rules")
        }
        if try arguments.isAboutFleet() {
            try arguments.refuseFleetRules()
            return try FleetGrants.set(arguments, access: access, name: name, expires: expires, coordination: coordination)
        }
        let administrator = GrantAdministrator.command(try arguments.openStore())
        let grant = try administrator.select(selectors, view: view)[0]
        let progress = ProgressOutput(isJSON: arguments.wantsJSON)
        defer { progress.end() }
        let change = try administrator.set(
            grant, access: access, name: name, expires: expires, coordination: coordination, rules: rules, timeout: timeout,
            progress: { progress.show($0) },
            recorded: {
                Interruption.says(
                    "interrupted: the change of “\(grant.name)” is recorded and stays so, and each mount carries it out. "
                        + "Some may not have done so yet (grantfs set again waits for them)", status: 3)
            })
        Interruption.end()
        progress.end()
        if arguments.wantsJSON {
            let described = administrator.describe([change.grant])[0]
            try Terminal.print(JSON.object(JSON.grant(described) + [JSON.mounts(change)]).text)
            return Confirmation.exitStatus(of: [change], "the change", timeout: timeout)
        }
        let differences = grant.differences(to: change.grant).map { Terminal.visible($0) }
        let status = try Confirmation.print(
            [change], differences.isEmpty ? "unchanged:" : "changed", "the change", arguments: arguments, timeout: timeout)
        for difference in differences { try Terminal.print("  " + difference) }
        return status
    }

    private static func coordination(_ arguments: ParsedArguments) throws(GrantError) -> Coordination? {
        guard let text = try arguments.text("coordination") else { return nil }
        guard let coordination = Coordination(rawValue: text) else {
            throw GrantError(.usage, "invalid coordination “\(text)”", advice: "use advisory or mandatory")
        }
        return coordination
    }

    private static func rules(_ arguments: ParsedArguments) throws(GrantError) -> RuleChange? {
        let change = try arguments.ruleChange()
        guard arguments.has("no-rules") else { return change.isEmpty ? nil : change }
        if !change.isEmpty {
            throw GrantError(.usage, "set: --no-rules removes all patterns", advice: "leave it out, or --hide, --protect and --only")
        }
        return RuleChange(.none)
    }

    private static func expiry(_ arguments: ParsedArguments) throws(GrantError) -> Instant?? {
        guard let text = try arguments.text("expires") else { return nil }
        if text == "never" { return .some(nil) }
        return try Expiry.parse(text, now: Instant(nanoseconds: Clock.realtime))
    }
}
