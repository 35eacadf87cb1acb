import GrantCommandLine

/// The commands of `grantfs`. Other programs run the others (`CompanionProgram`).
enum GrantfsCommands {
    static let bodies: [String: CommandBody] = [
        "grant": GrantCommand.run, "pick": PickCommand.run, "list": ListCommand.run,
        "revoke": RevokeCommand.run, "restore": RestoreCommand.run, "remove": RemoveCommand.run,
        "set": SetCommand.run, "why": WhyCommand.run, "repair": RepairCommand.run, "release": ReleaseCommand.run,
        "mount": MountCommand.run, "unmount": UnmountCommand.run, "coordinate": CoordinateCommand.run,
        "present": PresentCommand.run, "apply": ApplyCommand.run, "export": ExportCommand.run,
        "doctor": DoctorCommand.run, "status": StatusCommand.run, "top": TopCommand.run,
        "metrics": MetricsCommand.run, "log": LogCommand.run, "upgrade": UpgradeCommand.run,
        "inventory": InventoryCommand.run, "serve": ServeCommand.run, "completion": CompletionCommand.run,
        "complete": CompleteCommand.run, "manual": ManualCommand.run, "policy check": PolicyCommand.check,
        "policy explain": PolicyCommand.explain,
    ]
}
