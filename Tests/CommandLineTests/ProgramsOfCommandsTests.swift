import GrantCommandLine
import GrantDeclarations
import GrantModel
import Testing

@testable import grantfs
@testable import grantfs_fleet
@testable import grantfs_portal
@testable import grantfs_sandbox
@testable import grantfs_volumes

/// Which program runs which command.
@Suite struct ProgramsOfCommandsTests {
    private static let bodies: [CompanionProgram?: Set<String>] = [
        nil: Set(GrantfsCommands.bodies.keys), .sandbox: Set(SandboxCommands.bodies.keys), .portal: Set(PortalCommand.bodies.keys),
        .fleet: Set(FleetCommands.bodies.keys), .volumes: Set(VolumePluginCommand.bodies.keys).union(HookCommand.bodies.keys),
    ]

    @Test(
        "Each program has the code of the commands that are declared for it, and no other",
        arguments: [nil, .sandbox, .portal, .fleet, .volumes] as [CompanionProgram?])
    func code(program: CompanionProgram?) {
        let commands = CommandLineProgram.declaration.commands.flatMap(\.leaves)
        let declared = commands.filter { command in
            command.program == program || command.options.contains { $0.program != nil && $0.program == program }
        }
        #expect(Self.bodies[program] == Set(declared.map(\.fullName)))
    }

    @Test(
        "Options move a command to another program",
        arguments: [
            ("list", nil), ("list --fleet", .fleet), ("--fleet list", .fleet), ("top --fleet -d 1", .fleet),
            ("run -- list --fleet", .sandbox), ("fleet hosts", .fleet), ("portal --replace", .portal), ("revoke --all", nil),
            ("volume-plugin --socket /run/grantfs.sock", .volumes), ("oci-hook --allow /srv", .volumes),
        ] as [(String, CompanionProgram?)])
    func options(line: String, program: CompanionProgram?) throws {
        let words = line.split(separator: " ").map { Array($0.utf8) }
        guard case .run(let command, let arguments) = try ArgumentParser(program: CommandLineProgram.declaration).parse(words) else {
            throw GrantError(.system, "no command to run")
        }
        #expect(command.program(for: arguments) == program)
    }
}
