import GrantCommandLine

/// The commands of `grantfs-sandbox`.
enum SandboxCommands {
    static let bodies: [String: CommandBody] = [
        "run": RunCommand.run, "profile": ProfileCommand.run, "bwrap": BwrapCommand.run, "diff": DiffCommand.run, "undo": UndoCommand.run,
        "mcp": MCPCommand.run,
        "begin": BeginCommand.run, "proxy": ProxyCommand.run,
    ]
}
