import Glibc
import GrantModel
import GrantMounts
import GrantSystem

/// A program that `grantfs` starts.
///
/// It is beside the executable that searches for it, or else in `../libexec/grantfs`. PATH is not searched, and no link is followed. A
/// process opens each file once, so that all its daemons and helpers are the same program, wherever the name leads to by then.
package enum CompanionProgram: String, CaseIterable, Sendable {
    /// Serves mounts, and looks at directories for commands.
    case daemon = "grantfsd"
    /// Runs programs in sandboxes, and shows and undoes their changes.
    case sandbox = "grantfs-sandbox"
    /// The desktop's portal of documents.
    case portal = "grantfs-portal"
    /// The commands, the agent and the console of a fleet.
    case fleet = "grantfs-fleet"
    /// The volume plugin of container engines.
    case volumes = "grantfs-volumes"

    static let executable = "/proc/self/exe"

    /// Its name in a directory.
    var fileName: String { rawValue + InjectedFault.programSuffix }
    /// The package that has it.
    package var package: String {
        switch self {
        case .daemon, .sandbox: "grantfs"
        case .portal, .fleet, .volumes: rawValue
        }
    }

    /// The program that was found, open as long as this process lives.
    package func file() throws(GrantError) -> ProgramFile { .descriptor(try descriptor()) }

    /// Replaces this process by the program. Arguments, environment, signals and inherited descriptors stay.
    package func become(_ words: [[UInt8]]) throws(GrantError) -> Never {
        let program = "/proc/self/fd/\(try descriptor())"
        let arguments = words.map { word in withCString(word) { strdup($0) } } + [nil]
        execv(program, arguments)
        throw GrantError(.system, "\(fileName) cannot be started", cause: Errno(errno).description)
    }

    /// Whether the found program starts and has this version.
    package func isOfThisVersion() throws(GrantError) -> Bool {
        let (status, said) = try output(of: ["--version"])
        return status == 0 && said == Array("\(rawValue) \(ProgramDeclaration.version)\n".utf8)
    }

    /// Runs it with these words as `grantfs`, without input, and returns the exit status and the standard output.
    package func output(of words: [String]) throws(GrantError) -> (status: Int32, said: [UInt8]) {
        let file = try descriptor()
        do throws(Errno) {
            let pipe = try PipePair()
            // A shell redirects its standard output.
            let shell = ["sh", "-c", "exec /proc/self/fd/4 \"$@\" >&3", "grantfs"] + words
            let child = try ChildProcess.spawn(
                "/bin/sh", arguments: shell.map { Array($0.utf8) }, silent: true, descriptors: [pipe.writing.number, file])
            let reading = pipe.closeWriting()
            let said = (try? File.contents(of: "/proc/self/fd/\(reading.number)".utf8)) ?? []
            return (try ChildProcess.wait(child), said)
        } catch {
            throw GrantError(.system, "\(fileName) cannot be started", cause: error.description)
        }
    }

    /// A failure is not kept: the package may be about to be installed.
    private func descriptor() throws(GrantError) -> Int32 {
        try CompanionProgram.found.withLock { found throws(GrantError) in
            if let known = found[self] { return known }
            let file = try find().release()
            found[self] = file
            return file
        }
    }

    private static let found = Lock<[CompanionProgram: Int32]>([:])
}
