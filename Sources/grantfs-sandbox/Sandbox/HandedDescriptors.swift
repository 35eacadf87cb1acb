import Glibc
import GrantSystem

/// Descriptors for a program to be started, with consecutive numbers there. Owns them, and closes them at the end of its lifetime.
final class HandedDescriptors {
    private let first: Int32
    private(set) var numbers: [Int32]

    /// Takes ownership of those that have numbers in the program already, from `first` on.
    init(first: Int32, _ numbers: [Int32] = []) { (self.first, self.numbers) = (first, numbers) }

    deinit { close() }

    /// Closes them here, once the program has them.
    func close() {
        for number in numbers { Glibc.close(number) }
        numbers = []
    }

    /// Takes ownership of a descriptor. Returns its number in the program.
    func hand(_ descriptor: consuming FileDescriptor) -> Int32 {
        numbers.append(descriptor.release())
        return first + Int32(clamping: numbers.count) - 1
    }
}
