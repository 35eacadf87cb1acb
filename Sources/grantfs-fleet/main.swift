import GrantDeclarations

CommandLineProgram.main(.fleet, FleetCommands.bodies)
