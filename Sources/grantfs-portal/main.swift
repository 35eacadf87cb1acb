import GrantDeclarations

CommandLineProgram.main(.portal, PortalCommand.bodies)
