import GrantCommandLine
import Glibc
import GrantSystem

/// The declarations of the whole command line. All programs with commands have them, and each the code of its own commands.
package enum CommandLineProgram {
    package static let declaration = ProgramDeclaration(
        name: "grantfs", version: ProgramDeclaration.version,
        summary: "Grants directories to views, mounts the views, and withdraws grants, live.",
        commands: [
            .grant, .pick, .list, .revoke, .restore, .remove, .set, .why, .repair, .release,
            MountRequest.declaration, .unmount, .run, .profile, .bwrap, .diff, .undo, .mcp, .portal, .volumePlugin, .hook, .coordinate,
            .present,
            .apply, .export, .policy, .doctor, .status, .top, .metrics, .log, .upgrade, .fleet, .agent,
            .fleetCheck, .inventory, .serve, .begin, .proxy, .completion, .complete, .manual,
        ],
        formerCommands: [
            "resolve": "repair SELECTOR", "confirm": "repair SELECTOR --confirm PATH", "watch": "log --follow",
        ],
        commonOptions: ProgramDeclaration.standardOptions,
        groups: [
            ("Every day", ["grant", "mount", "list", "revoke", "unmount"]),
            ("Grants", ["pick", "set", "why", "restore", "remove", "apply", "export"]),
            ("Use", ["run", "profile", "bwrap", "diff", "undo", "mcp", "portal", "volume-plugin", "oci-hook", "status", "top", "log"]),
            ("Repair", ["doctor", "repair", "release"]),
            ("Coordination", ["coordinate", "present"]),
            ("Many machines", ["fleet", "agent"]),
            ("The machine", ["policy", "upgrade", "metrics", "completion"]),
        ])

    /// Runs the process's command line as this program, or nil for `grantfs`. `bodies`: see `ProgramDeclaration.run`.
    package static func main(_ program: CompanionProgram?, _ bodies: [String: CommandBody]) -> Never {
        ProcessStart.prepare()
        // Started by a descriptor, a program would have the descriptor's number as its name. Scripts find it by this one.
        if program != nil { ProcessName.set("grantfs") }
        let words = ProcessArguments.words
        if let first = words.first, first.split(separator: UInt8(ascii: "/")).last?.elementsEqual("bwrap".utf8) == true {
            exit(declaration.run([Array("bwrap".utf8)] + words.dropFirst(), asLink: true, as: program, bodies))
        }
        exit(declaration.run(Array(words.dropFirst()), as: program, bodies))
    }
}
