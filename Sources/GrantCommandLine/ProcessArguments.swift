import Glibc

/// The arguments of the process. `CommandLine.arguments` repairs invalid UTF-8, and so would name other files.
package enum ProcessArguments {
    package static var words: [[UInt8]] {
        (0..<Int(CommandLine.argc)).compactMap { index in
            CommandLine.unsafeArgv[index].map { word in
                UnsafeBufferPointer(start: word, count: strlen(word)).map { UInt8(bitPattern: $0) }
            }
        }
    }
}
