import Glibc
import GrantSystem

/// Descriptors that a program which is started gets, in order, from one number on. Closed here with this value.
final class HandedDescriptors {
    private let first: Int32
    private(set) var numbers: [Int32]

    /// Takes over those that have numbers in the program already, from `first` on.
    init(first: Int32, _ numbers: [Int32] = []) { (self.first, self.numbers) = (first, numbers) }

    deinit { close() }

    /// Closes them here, once the program has them.
    func close() {
        for number in numbers { Glibc.close(number) }
        numbers = []
    }

    /// Takes the descriptor over. The number it has in the program.
    func hand(_ descriptor: consuming FileDescriptor) -> Int32 {
        numbers.append(descriptor.release())
        return first + Int32(clamping: numbers.count) - 1
    }
}
