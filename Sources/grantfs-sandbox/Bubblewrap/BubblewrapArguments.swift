import Glibc
import GrantModel
import GrantSystem

/// The options for bubblewrap, made from those of a command line.
struct BubblewrapArguments {
    private let options: [BubblewrapLine.Option]
    private var replaced: [Int: [[UInt8]]] = [:]
    private var added: [Int: [[UInt8]]] = [:]
    private var handed: [Int32] = []

    /// The options whose first value is a descriptor.
    private static let ofDescriptors: Set = [
        "--userns", "--userns2", "--pidns", "--sync-fd", "--file", "--bind-data", "--ro-bind-data", "--bind-fd", "--ro-bind-fd",
        "--seccomp", "--add-seccomp-fd", "--block-fd", "--userns-block-fd", "--info-fd", "--json-status-fd",
    ]

    init(_ line: BubblewrapLine) { options = line.options }

    /// Leaves options out, and the modifiers before each.
    mutating func drop(_ indices: Set<Int>) {
        for index in indices {
            replaced[index] = []
            var before = index - 1
            while before >= 0, ["--perms", "--size"].contains(options[before].name) {
                replaced[before] = []
                before -= 1
            }
        }
    }

    func option(_ index: Int) -> BubblewrapLine.Option { options[index] }

    /// Has other words in place of an option.
    mutating func replace(_ index: Int, with words: [[UInt8]]) { replaced[index] = words }

    /// Adds words after an option and after those already added there, or before all options for -1.
    mutating func add(_ words: [[UInt8]], after index: Int) { added[index, default: []] += words }

    /// The words that cover a directory with an empty one, to which a program cannot write.
    static func cover(_ place: [UInt8]) -> [[UInt8]] { [Array("--tmpfs".utf8), place, Array("--remount-ro".utf8), place] }

    /// Has a descriptor inherited by bubblewrap, and returns its number.
    mutating func hand(_ file: consuming FileDescriptor) throws(Errno) -> Int32 {
        let number = try high(file)
        handed.append(number)
        return number
    }

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
        return (["--args", "\(file)", "--"].map { Array($0.utf8) } + command, handed + [file])
    }

    /// Returns a number above those that the options name: one that is not open there would be another file.
    private func high(_ file: consuming FileDescriptor) throws(Errno) -> Int32 {
        let named = options.filter { Self.ofDescriptors.contains($0.name) }.compactMap(\.values.first)
            .compactMap { Int32(String(decoding: $0, as: UTF8.self)) }.filter { $0 < 1 << 20 }
        return try Errno.check(fcntl(file.number, F_DUPFD_CLOEXEC, max(9, named.max() ?? 0) + 1))
    }
}
