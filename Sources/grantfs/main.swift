import GrantDeclarations

CommandLineProgram.main(nil, GrantfsCommands.bodies)
