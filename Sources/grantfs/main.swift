import Glibc
import GrantCommandLine
import GrantSystem

ProcessStart.prepare()
exit(CommandLineProgram.declaration.run(ProcessArguments.words.dropFirst().map { $0 }))
