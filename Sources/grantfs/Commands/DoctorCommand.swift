import GrantCommandLine
import GrantCommandSupport
import GrantModel

/// `grantfs doctor`
enum DoctorCommand {
    static func run(_ arguments: ParsedArguments) throws(GrantError) -> Int32 {
        let findings =
            MountingChecks.run() + InstallationChecks.run() + KernelChecks.run() + LimitChecks.run() + SandboxChecks.run()
            + (try StoreChecks.run(arguments)) + (try FleetChecks.run(arguments))
        let isHealthy = !findings.contains { $0.level == .problem }
        if arguments.wantsJSON {
            try Terminal.print(JSON.object([("healthy", .bool(isHealthy)), ("findings", .array(findings.map(\.json)))]).text)
        } else {
            for finding in findings { try show(finding) }
        }
        return isHealthy ? 0 : 1
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
