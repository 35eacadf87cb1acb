import Glibc
import GrantModel
import GrantMounts
import GrantSystem

/// `grantfsd`, the program that serves mounts and looks at directories for commands.
///
/// It is beside the command's own executable, or else in `../libexec/grantfs`. PATH is not searched. A command opens the file once, so
/// that all its daemons and helpers are the same program, wherever the name leads to by then.
package enum DaemonProgram {
    /// Commands of `grantfsd` that programs of earlier versions start as commands of `grantfs`.
    private static let commands = Set(["keeper", "look", "recover", "take-over"].map { Array($0.utf8) })

    /// Whether the words after the program's name are a command of `grantfsd`, perhaps after the options that `BackgroundStart` adds.
    package static func hasCommand(_ words: some Sequence<[UInt8]>) -> Bool {
        let command = words.first {
            !$0.starts(with: "--".utf8) || !($0.contains(UInt8(ascii: "=")) || $0.elementsEqual("--foreground".utf8))
        }
        return command.map { commands.contains($0) } ?? false
    }

    private static let name = "grantfsd" + InjectedFault.programSuffix
    private static let own = "/proc/self/exe"

    /// Returns the path for `ChildProcess.spawn` and execve(2).
    package static func path() throws(GrantError) -> String {
        switch found {
        case .success(let descriptor): return "/proc/self/fd/\(descriptor)"
        case .failure(let error): throw error
        }
    }

    /// Replaces this process by the daemon's program. Arguments, environment, signals and inherited descriptors stay.
    package static func become(_ words: [[UInt8]]) throws(GrantError) -> Never {
        let program = try path()
        let arguments = words.map { word in withCString(word) { strdup($0) } } + [nil]
        execv(program, arguments)
        throw GrantError(.system, "\(name) cannot be started", cause: Errno(errno).description)
    }

    /// Open as long as this process lives.
    private static let found: Result<Int32, GrantError> = {
        do throws(GrantError) {
            return .success(try find().release())
        } catch {
            return .failure(error)
        }
    }()

    private static func find() throws(GrantError) -> FileDescriptor {
        let places = try directories().map { CanonicalPath.join($0, Array(name.utf8)) }
        for place in places {
            let file: FileDescriptor
            do throws(Errno) {
                file = try FileDescriptor.open(place, OpenFlags.path)
            } catch {
                if error == Errno(ENOENT) || error == Errno(ENOTDIR) { continue }
                throw GrantError(.system, "\(VisibleText.of(place)) cannot be started", cause: error.description)
            }
            guard isTrusted(file) else {
                throw GrantError(
                    .permission, "\(VisibleText.of(place)) is not started",
                    cause: "it is not as protected from other users as this program",
                    advice: "it must be a file of root, of you or of the owner of grantfs, and writable for no others")
            }
            return file
        }
        throw GrantError(
            .system, "\(name) is missing", cause: "there is no " + places.map { VisibleText.of($0) }.joined(separator: " and no "),
            advice: "it is in the package grantfs, and is installed and copied together with grantfs")
    }

    private static func directories() throws(GrantError) -> [[UInt8]] {
        do throws(Errno) {
            var program = try CanonicalPath.target(of: Array(own.utf8))
            // The kernel's mark of a file that an upgrade has replaced meanwhile.
            let replaced = Array(" (deleted)".utf8)
            if linkCount == 0, program.suffix(replaced.count).elementsEqual(replaced) { program.removeLast(replaced.count) }
            let directory = CanonicalPath.parent(of: program)
            return [directory, CanonicalPath.join(CanonicalPath.parent(of: directory), Array("libexec/grantfs".utf8))]
        } catch {
            throw GrantError(.system, "\(name) cannot be found", cause: "\(own): \(error)")
        }
    }

    private static var linkCount: UInt64? {
        var status = stat()
        return stat(own, &status) == 0 ? UInt64(status.st_nlink) : nil
    }

    /// Whether no user can change it who cannot change this program.
    private static func isTrusted(_ file: borrowing FileDescriptor) -> Bool {
        var (program, daemon) = (stat(), stat())
        guard stat(own, &program) == 0, fstat(file.number, &daemon) == 0, daemon.st_mode & S_IFMT == S_IFREG else { return false }
        let others: mode_t = 0o022
        return [0, geteuid(), program.st_uid].contains(daemon.st_uid) && daemon.st_mode & others & ~program.st_mode == 0
    }
}
