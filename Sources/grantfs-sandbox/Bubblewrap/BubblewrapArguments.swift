import Glibc
import GrantModel
import GrantSystem

/// The options for bubblewrap, made from those of a command line.
struct BubblewrapArguments {
    private let options: [BubblewrapLine.Option]
    private var replaced: [Int: [[UInt8]]] = [:]
    private var added: [Int: [[UInt8]]] = [:]

    init(_ line: BubblewrapLine) { options = line.options }

    /// Leaves options out.
    mutating func drop(_ indices: Set<Int>) { for index in indices { replaced[index] = [] } }

    /// Has other words in place of an option.
    mutating func replace(_ index: Int, with words: [[UInt8]]) { replaced[index] = words }

    /// Adds words after an option and after those already added there, or before all options for -1.
    mutating func add(_ words: [[UInt8]], after index: Int) { added[index, default: []] += words }

    /// Returns the words, and the descriptors that they name.
    func words(command: [[UInt8]]) throws(GrantError) -> (words: [[UInt8]], descriptors: [Int32]) {
        var words = added[-1] ?? []
        for (index, option) in options.enumerated() {
            words += replaced[index] ?? [Array(option.name.utf8)] + option.values
            words += added[index] ?? []
        }
        // By a file, because a program may see bubblewrap's command line, and paths of this session with it.
        let file: Int32
        do throws(Errno) {
            file = try high(try MemoryFile.of(Array(words.joined(separator: [0])) + (words.isEmpty ? [] : [0])))
        } catch {
            throw GrantError(.system, "bubblewrap's arguments cannot be passed on", cause: error.description)
        }
        return (["--args", "\(file)", "--"].map { Array($0.utf8) } + command, [file])
    }

    /// Returns a number above those that the options name: one that is not open there would be another file.
    func high(_ file: consuming FileDescriptor) throws(Errno) -> Int32 {
        let named = options.flatMap(\.values).compactMap { Int32(String(decoding: $0, as: UTF8.self)) }.filter { $0 < 1 << 20 }
        return try Errno.check(fcntl(file.number, F_DUPFD_CLOEXEC, max(9, named.max() ?? 0) + 1))
    }
}
