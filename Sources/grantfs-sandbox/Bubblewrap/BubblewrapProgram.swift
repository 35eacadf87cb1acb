import Glibc
import GrantModel
import GrantSystem

/// The installed bubblewrap.
final class BubblewrapProgram {
    let path: String
    private var help: Ahead<Result<[String: Int], GrantError>>?

    init() throws(GrantError) { path = try SandboxProcess.bubblewrap() }

    /// Begins to read its help.
    func readHelp() {
        if help == nil {
            help = Ahead { [path] in
                Result { () throws(GrantError) in BubblewrapProgram.options(inHelp: try BubblewrapProgram.help(of: path)) }
            }
        }
    }

    /// Returns how many values an option has, as its help says, or nil if that does not list the option.
    func valueCount(of option: String) throws(GrantError) -> Int? {
        readHelp()
        return try help?.value.get()[option]
    }

    /// Lines such as `    --bind SRC DEST              Bind mount …`: values are in capitals, and two spaces end them.
    static func options(inHelp text: String) -> [String: Int] {
        var found: [String: Int] = [:]
        for line in text.split(separator: "\n") {
            let words = line.drop { $0 == " " }.split(separator: " ", omittingEmptySubsequences: false).prefix { !$0.isEmpty }
            guard let name = words.first, name.hasPrefix("--") else { continue }
            found[String(name)] = words.count - 1
        }
        return found
    }

    private static func help(of path: String) throws(GrantError) -> String {
        do throws(Errno) {
            let pipe = try PipePair()
            let shell = ["sh", "-c", "exec \"$0\" --help >&3", path].map { Array($0.utf8) }
            // Not this process's environment, which another thread changes.
            let child = try ChildProcess.spawn(
                "/bin/sh", arguments: shell, environment: [], silent: true, descriptors: [pipe.writing.number])
            let reading = pipe.closeWriting()
            let text = try File.contents(of: "/proc/self/fd/\(reading.number)".utf8)
            _ = try ChildProcess.wait(child)
            return String(decoding: text, as: UTF8.self)
        } catch {
            throw GrantError(.system, "\(path) does not list its options", cause: error.description)
        }
    }

    /// Becomes bubblewrap, which keeps this process's number, terminal, directory and inherited descriptors.
    ///
    /// - Parameters:
    ///   - words: Its arguments.
    ///   - variables: Its environment.
    ///   - descriptors: Are inherited as well.
    func become(_ words: [[UInt8]], _ variables: [[UInt8]], _ descriptors: [Int32] = []) throws(GrantError) -> Never {
        for number in descriptors { _ = fcntl(number, F_SETFD, 0) }
        // `ProcessStart` has it ignored.
        signal(SIGXFSZ, SIG_DFL)
        let arguments = ([Array("bwrap".utf8)] + words).map { word in withCString(word) { strdup($0) } } + [nil]
        let environment = variables.map { word in withCString(word) { strdup($0) } } + [nil]
        execve(path, arguments, environment)
        throw GrantError(.system, "\(path) cannot be started", cause: Errno(errno).description)
    }
}
