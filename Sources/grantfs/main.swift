import Glibc

exit(CommandLineProgram.run(ProcessArguments.words.dropFirst().map { $0 }))
