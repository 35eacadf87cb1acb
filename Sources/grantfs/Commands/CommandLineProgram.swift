import GrantCommandLine
import GrantModel

/// The declarations of the whole command line.
enum CommandLineProgram {
    static let declaration = ProgramDeclaration(
        name: "grantfs", version: ProgramDeclaration.version,
        summary: "Grants directories to views, mounts the views, and withdraws grants, live.",
        commands: [
            GrantCommand.declaration, PickCommand.declaration, ListCommand.declaration, RevokeCommand.declaration,
            RestoreCommand.declaration, RemoveCommand.declaration, SetCommand.declaration, RepairCommand.declaration,
            ReleaseCommand.declaration, MountCommand.declaration,
            UnmountCommand.declaration, RunCommand.declaration, DiffCommand.declaration, UndoCommand.declaration,
            MCPCommand.declaration, PortalCommand.declaration,
            CoordinateCommand.declaration, PresentCommand.declaration,
            ApplyCommand.declaration, ExportCommand.declaration, PolicyCommand.declaration,
            DoctorCommand.declaration,
            StatusCommand.declaration, TopCommand.declaration, MetricsCommand.declaration, LogCommand.declaration,
            UpgradeCommand.declaration, FleetCommand.declaration, AgentCommand.declaration, InventoryCommand.declaration,
            ServeCommand.declaration,
            BeginCommand.declaration, ProxyCommand.declaration,
            CompletionCommand.declaration,
            CompleteCommand.declaration, ManualCommand.declaration,
        ],
        formerCommands: [
            "resolve": "repair SELECTOR", "confirm": "repair SELECTOR --confirm PATH", "watch": "log --follow",
        ],
        commonOptions: ProgramDeclaration.standardOptions,
        groups: [
            ("Every day", ["grant", "mount", "list", "revoke", "unmount"]),
            ("Grants", ["pick", "set", "restore", "remove", "apply", "export"]),
            ("Use", ["run", "diff", "undo", "mcp", "portal", "status", "top", "log"]),
            ("Repair", ["doctor", "repair", "release"]),
            ("Coordination", ["coordinate", "present"]),
            ("Many machines", ["fleet", "agent"]),
            ("The machine", ["policy", "upgrade", "metrics", "completion"]),
        ])
}
