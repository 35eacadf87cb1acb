import Glibc
import GrantModel
import GrantMounts
import GrantSystem

/// `grantfsd`, the program that serves mounts and looks at directories for commands.
///
/// It is beside the command's own executable, or else in `../libexec/grantfs`. PATH is not searched, and no link is followed. A command
/// opens the file once, so that all its daemons and helpers are the same program, wherever the name leads to by then.
package enum DaemonProgram {
    static let name = "grantfsd" + InjectedFault.programSuffix
    static let executable = "/proc/self/exe"

    /// The program that was found, open as long as this process lives.
    package static func file() throws(GrantError) -> ProgramFile { .descriptor(try descriptor()) }

    /// Replaces this process by the daemon's program. Arguments, environment, signals and inherited descriptors stay.
    package static func become(_ words: [[UInt8]]) throws(GrantError) -> Never {
        let program = "/proc/self/fd/\(try descriptor())"
        let arguments = words.map { word in withCString(word) { strdup($0) } } + [nil]
        execv(program, arguments)
        throw GrantError(.system, "\(name) cannot be started", cause: Errno(errno).description)
    }

    /// Whether the found program starts and has this version.
    package static func isOfThisVersion() throws(GrantError) -> Bool {
        let file = try descriptor()
        do throws(Errno) {
            let pipe = try PipePair()
            // A shell redirects its standard output.
            let words = ["sh", "-c", "exec /proc/self/fd/4 --version >&3"].map { Array($0.utf8) }
            let child = try ChildProcess.spawn("/bin/sh", arguments: words, silent: true, descriptors: [pipe.writing.number, file])
            let reading = pipe.closeWriting()
            let said = (try? File.contents(of: "/proc/self/fd/\(reading.number)".utf8)) ?? []
            return try ChildProcess.wait(child) == 0 && said == Array("grantfsd \(ProgramDeclaration.version)\n".utf8)
        } catch {
            throw GrantError(.system, "\(name) cannot be started", cause: error.description)
        }
    }

    /// A failure is not kept: the package may be about to be installed.
    private static func descriptor() throws(GrantError) -> Int32 {
        try found.withLock { found throws(GrantError) in
            if let found { return found }
            let file = try find().release()
            found = file
            return file
        }
    }

    private static let found = Lock<Int32?>(nil)
}
