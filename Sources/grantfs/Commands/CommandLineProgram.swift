import GrantCommandLine
import GrantDaemon
import GrantModel

/// The declarations of the whole command line.
enum CommandLineProgram {
    static let version = "0.1.0"

    static let declaration = ProgramDeclaration(
        name: "grantfs", version: version,
        summary: "Grants directories to views, mounts the views, and withdraws grants, live.",
        commands: [
            GrantCommand.declaration, PickCommand.declaration, ListCommand.declaration, RevokeCommand.declaration,
            RestoreCommand.declaration, RemoveCommand.declaration, SetCommand.declaration, ResolveCommand.declaration,
            ConfirmCommand.declaration, RepairCommand.declaration, ReleaseCommand.declaration, MountCommand.declaration,
            UnmountCommand.declaration, RunCommand.declaration, DiffCommand.declaration, UndoCommand.declaration,
            MCPCommand.declaration, PortalCommand.declaration,
            CoordinateCommand.declaration, PresentCommand.declaration,
            WatchCommand.declaration, ApplyCommand.declaration, ExportCommand.declaration, PolicyCommand.declaration,
            DoctorCommand.declaration,
            StatusCommand.declaration, TopCommand.declaration, MetricsCommand.declaration, LogCommand.declaration,
            UpgradeCommand.declaration, FleetCommand.declaration, AgentCommand.declaration, TakeOverCommand.declaration,
            RecoverCommand.declaration, LookCommand.declaration, InventoryCommand.declaration, ServeCommand.declaration,
            KeeperCommand.declaration,
            BeginCommand.declaration, ProxyCommand.declaration,
            CompletionCommand.declaration,
            CompleteCommand.declaration, ManualCommand.declaration,
        ],
        commonOptions: [
            CommonOptions.store,
            OptionDeclaration("help", short: "h", help: "say this"),
            OptionDeclaration("version", help: "say the version"),
        ],
        groups: [
            ("Every day", ["grant", "mount", "list", "revoke", "unmount"]),
            ("Grants", ["pick", "set", "restore", "remove", "resolve", "apply", "export"]),
            ("Use", ["run", "diff", "undo", "mcp", "portal", "status", "top", "log"]),
            ("Repair", ["doctor", "repair", "confirm", "release"]),
            ("Coordination", ["coordinate", "present", "watch"]),
            ("Many machines", ["fleet", "agent"]),
            ("The machine", ["policy", "upgrade", "metrics", "completion"]),
        ])

    /// Runs a command line and returns the exit status.
    static func run(_ words: [[UInt8]]) -> Int32 {
        do throws(GrantError) {
            switch try ArgumentParser(program: declaration).parse(words) {
            case .version: try Terminal.print("grantfs \(version)")
            case .help(nil): try Terminal.print(HelpText.program(declaration), terminator: "")
            case .help(let command?): try Terminal.print(HelpText.command(command, of: declaration), terminator: "")
            case .run(let command, let arguments): return try command.run(arguments)
            }
            return 0
        } catch {
            Terminal.report(error)
            return error.exitStatus
        }
    }
}
