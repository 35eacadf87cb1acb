import Glibc
import GrantCommandLine
import GrantSystem

ProcessStart.prepare()
exit(CommandLineProgram.run(ProcessArguments.words.dropFirst().map { $0 }))
