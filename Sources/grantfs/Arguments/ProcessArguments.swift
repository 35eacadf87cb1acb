import Glibc

/// What the program was started with. `CommandLine.arguments` mends what is no UTF-8, and so names other files.
enum ProcessArguments {
    static var words: [[UInt8]] {
        (0..<Int(CommandLine.argc)).compactMap { index in
            CommandLine.unsafeArgv[index].map { word in
                UnsafeBufferPointer(start: word, count: strlen(word)).map { UInt8(bitPattern: $0) }
            }
        }
    }
}
