import GrantDeclarations

CommandLineProgram.main(.volumes, VolumePluginCommand.bodies)
