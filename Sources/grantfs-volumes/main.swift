import GrantDeclarations

CommandLineProgram.main(.volumes, VolumePluginCommand.bodies.merging(HookCommand.bodies) { own, _ in own })
