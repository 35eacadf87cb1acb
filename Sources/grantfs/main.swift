import Glibc
import GrantCommandLine
import GrantSystem

ProcessStart.prepare()
exit(CommandLineProgram.run(ProcessArguments.words))
