import Glibc
import GrantAdministration
import GrantCommandLine
import GrantCommandSupport
import GrantModel

/// Has `grantfs-fleet` check this machine's part in a fleet, if it has one.
enum FleetChecks {
    static func run(_ arguments: ParsedArguments) throws(GrantError) -> [Finding] {
        let store = try arguments.storeDirectory()
        guard [false, true].contains(where: { access(FleetFiles.credentials(host: $0, store: store), F_OK) == 0 }) else { return [] }
        do throws(GrantError) {
            let (status, said) = try CompanionProgram.fleet.output(of: ["fleet-check", "--store", store])
            if status == 0, case .array(let documents)? = JSONReader()?.read(said) { return documents.compactMap { Finding($0) } }
            return [.problem("fleet", "grantfs-fleet cannot check this machine", "install the package grantfs-fleet again")]
        } catch {
            return [.problem("fleet", error.description, error.advice ?? "install the package grantfs-fleet")]
        }
    }
}
