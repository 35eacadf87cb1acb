import GrantCommandLine
import GrantModel

/// `grantfs doctor`
enum DoctorCommand {
    static let declaration = CommandDeclaration(
        "doctor", "What is wrong with the machine, the store or the mounts, and what helps?",
        options: [CommonOptions.json],
        notes: [
            "As the user who runs it: root and others need different things. Exit status: 0 when all is well, 1 when something has to be done. "
                + "A “note” says what works with less than there could be."
        ],
        run: run)

    private static func run(_ arguments: ParsedArguments) throws(GrantError) -> Int32 {
        let findings =
            MountingChecks.run() + InstallationChecks.run() + KernelChecks.run() + LimitChecks.run() + SandboxChecks.run()
            + (try StoreChecks.run(arguments)) + (try FleetChecks.run(arguments))
        let isHealthy = !findings.contains { $0.level == .problem }
        if arguments.wantsJSON {
            try Terminal.print(JSON.object([("healthy", .bool(isHealthy)), ("findings", .array(findings.map { .object(json($0)) }))]).text)
        } else {
            for finding in findings { try show(finding) }
        }
        return isHealthy ? 0 : 1
    }

    private static func json(_ finding: Finding) -> [(String, JSON)] {
        [
            ("check", .string(finding.check)), ("level", .string(finding.level.rawValue)), ("message", .string(finding.message)),
            ("advice", finding.advice.map { .string($0) } ?? .null),
        ]
    }

    private static func show(_ finding: Finding) throws(GrantError) {
        let mark =
            switch finding.level {
            case .ok: "ok      "
            case .note: "note    "
            case .problem: "PROBLEM "
            }
        try Terminal.print(mark + " " + finding.check + ": " + Terminal.visible(finding.message))
        if let advice = finding.advice { try Terminal.print("          → " + Terminal.visible(advice)) }
    }
}
