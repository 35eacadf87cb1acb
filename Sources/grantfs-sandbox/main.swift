import GrantDeclarations

CommandLineProgram.main(.sandbox, SandboxCommands.bodies)
