import GrantModel
import GrantMounts
import GrantStore
import GrantSystem

extension DirectoryProbe {
    /// The probe of all commands. Without the daemon's program a command looks itself, and reports that once.
    package static var command: DirectoryProbe {
        do throws(GrantError) {
            return .helper(program: try CompanionProgram.daemon.file(), arguments: lookArguments)
        } catch {
            let isNew = hasReported.withLock { reported in
                defer { reported = true }
                return !reported
            }
            if isNew { Terminal.report(error) }
            return .inProcess
        }
    }
    private static let hasReported = Lock(false)
    /// The arguments of a helper. They begin with the program's name, as ps(1) shows it.
    package static let lookArguments = ["grantfs", "look"]
}

extension GrantAdministrator {
    /// An administrator that does not hang with a directory.
    package static func command(_ store: GrantStore) -> GrantAdministrator { GrantAdministrator(store: store, probe: .command) }
}
