import GrantDeclarations

CommandLineProgram.main(nil, Commands.bodies)
