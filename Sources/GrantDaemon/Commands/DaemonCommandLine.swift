import GrantCommandLine
import GrantSystem

/// The command line of `grantfsd`.
package enum DaemonCommandLine {
    private static let declaration = ProgramDeclaration(
        name: "grantfsd", version: ProgramDeclaration.version,
        summary: "Serves the mounts of grantfs and looks at directories for it. grantfs starts it.",
        commands: [
            MountRequest.declaration, TakeOverCommand.declaration, RecoverCommand.declaration, KeeperCommand.declaration,
            LookCommand.declaration,
        ],
        commonOptions: ProgramDeclaration.standardOptions, groups: [])

    /// Runs the process's command line, and returns the exit status.
    package static func main() -> Int32 {
        ProcessStart.prepare()
        // Started by a descriptor, it would have the descriptor's number as its name. Programs find daemons by this one.
        ProcessName.set("grantfs")
        return declaration.run(
            ProcessArguments.words.dropFirst().map { $0 },
            [
                "mount": ServeMountCommand.run, "take-over": TakeOverCommand.run, "recover": RecoverCommand.run,
                "keeper": KeeperCommand.run, "look": LookCommand.run,
            ])
    }
}
