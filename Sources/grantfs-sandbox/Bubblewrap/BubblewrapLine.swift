import Glibc
import GrantModel
import GrantSystem

/// A command line of bubblewrap, see bwrap(1). The options of `--args` are in their place among the others.
///
/// An option that is read wrongly could make a bind look like an argument of the program. So a line that cannot be read is an error.
struct BubblewrapLine {
    struct Option {
        /// With the dashes.
        var name: String
        var values: [[UInt8]]
    }

    private(set) var options: [Option] = []
    /// The program to run and its arguments.
    private(set) var command: [[UInt8]] = []
    /// Whether bubblewrap only says something about itself.
    private(set) var asksForText = false
    private let valuesOf: (String) throws(GrantError) -> Int?

    /// bubblewrap's own limit.
    private static let most = 9000
    private static let largestFile = 16 << 20

    /// `others`: returns how many values an option has that is not known here, or nil if bubblewrap does not know it either.
    init(_ words: [[UInt8]], others: @escaping (String) throws(GrantError) -> Int?) throws(GrantError) {
        valuesOf = { (name) throws(GrantError) in
            if let count = BubblewrapLine.valueCounts[name] { return count }
            return try others(name)
        }
        command = try read(words, isFile: false)
    }

    /// Reads options, and returns the rest.
    private mutating func read(_ words: [[UInt8]], isFile: Bool) throws(GrantError) -> [[UInt8]] {
        var rest = words[...]
        while let word = rest.first, word.first == UInt8(ascii: "-") {
            rest.removeFirst()
            let name = String(decoding: word, as: UTF8.self)
            if name == "--" { break }
            guard Array(name.utf8) == word, let count = try valuesOf(name) else {
                throw GrantError(.usage, "bwrap: unknown option “\(VisibleText.of(word))”", advice: "bwrap --help lists them")
            }
            guard rest.count >= count else {
                throw GrantError(.usage, "bwrap: \(name) needs \(count == 1 ? "a value" : "\(count) values")")
            }
            let values = Array(rest.prefix(count))
            rest.removeFirst(count)
            if name == "--args" {
                if isFile { throw GrantError(.usage, "bwrap: --args is not possible in a file of arguments") }
                _ = try read(try BubblewrapLine.words(inFile: values[0]), isFile: true)
            } else {
                options.append(Option(name: name, values: values))
            }
            if options.count > BubblewrapLine.most { throw GrantError(.usage, "bwrap: too many arguments") }
            if name == "--help" || name == "--version" { asksForText = true }
        }
        return Array(rest)
    }

    /// Reads the words that a descriptor has, and closes it, as bubblewrap does.
    private static func words(inFile value: [UInt8]) throws(GrantError) -> [[UInt8]] {
        let number = try descriptor(value, of: "--args")
        var text: [UInt8] = []
        var buffer = [UInt8](repeating: 0, count: 65536)
        while true {
            let count = Glibc.read(number, &buffer, buffer.count)
            if count < 0, errno == EINTR { continue }
            guard count >= 0, text.count <= largestFile else {
                let cause = count < 0 ? Errno(errno).description : "there are more than 16 MiB"
                throw GrantError(.usage, "bwrap: the arguments of descriptor \(number) cannot be read", cause: cause)
            }
            if count == 0 { break }
            text += buffer.prefix(count)
        }
        closeInherited(number)
        if text.last == 0 { text.removeLast() }
        return text.isEmpty ? [] : text.split(separator: 0, omittingEmptySubsequences: false).map { Array($0) }
    }

    /// Throws `.usage` if the value is not the number of an open descriptor.
    static func descriptor(_ value: [UInt8], of option: String) throws(GrantError) -> Int32 {
        guard let number = Int32(String(decoding: value, as: UTF8.self)), number >= 0, fcntl(number, F_GETFD) >= 0 else {
            throw GrantError(.usage, "bwrap: \(option): “\(VisibleText.of(value))” is not an open descriptor")
        }
        return number
    }

    /// Closes a descriptor of the caller. Nothing else may get the number of a standard one.
    static func closeInherited(_ number: Int32) {
        if number > STDERR_FILENO {
            close(number)
        } else if let nothing = try? FileDescriptor.open("/dev/null".utf8, O_RDWR) {
            dup2(nothing.number, number)
        }
    }
}

extension BubblewrapLine {
    /// The numbers of values of the options up to bubblewrap 0.11.
    private static let valueCounts: [String: Int] = {
        let names: [[String]] = [
            [
                "--help", "--version", "--unshare-all", "--share-net", "--unshare-user", "--unshare-user-try", "--unshare-ipc",
                "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup", "--unshare-cgroup-try", "--disable-userns",
                "--assert-userns-disabled", "--clearenv", "--new-session", "--die-with-parent", "--as-pid-1", "--level-prefix",
            ],
            [
                "--args", "--argv0", "--userns", "--userns2", "--pidns", "--uid", "--gid", "--hostname", "--chdir", "--unsetenv",
                "--lock-file", "--sync-fd", "--remount-ro", "--exec-label", "--file-label", "--proc", "--dev", "--tmpfs", "--mqueue",
                "--dir", "--seccomp", "--add-seccomp-fd", "--block-fd", "--userns-block-fd", "--info-fd", "--json-status-fd", "--cap-add",
                "--cap-drop", "--perms", "--size", "--overlay-src", "--tmp-overlay", "--ro-overlay",
            ],
            [
                "--setenv", "--file", "--bind-data", "--ro-bind-data", "--symlink", "--chmod", "--bind", "--bind-try", "--dev-bind",
                "--dev-bind-try", "--ro-bind", "--ro-bind-try", "--bind-fd", "--ro-bind-fd",
            ],
            ["--overlay"],
        ]
        return Dictionary(uniqueKeysWithValues: names.enumerated().flatMap { count, names in names.map { ($0, count) } })
    }()
}
