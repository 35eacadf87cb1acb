import Glibc
import GrantAdministration
import GrantModel
import GrantSystem

/// A file or directory that a sandbox shows read-only, and that cannot be revoked while the program runs.
///
/// bwrap binds by path, and another program may change a parent directory meanwhile. So the file's device and inode are recorded, and
/// the sandbox first checks that it has that very file (`BeginCommand`).
struct SandboxBind: Sendable {
    /// Canonical.
    let source: [UInt8]
    /// The path in the sandbox: the given path, if it is plain and absolute.
    let place: [UInt8]
    let isDirectory: Bool
    let device: UInt64
    let inode: UInt64

    /// Looks a path up. Links are followed, because the user named the path. It throws `.notFound`,
    /// or `.invalidDirectory` if it is neither a directory nor a file.
    init(_ word: [UInt8]) throws(GrantError) {
        let shown = String(decoding: word, as: UTF8.self)
        do throws(Errno) {
            let file = try FileDescriptor.open(word, OpenFlags.path)
            let status = try file.status().st
            source = try file.path()
            place = CanonicalPath.plain(word) == word ? word : source
            isDirectory = status.st_mode & S_IFMT == S_IFDIR
            (device, inode) = (UInt64(truncatingIfNeeded: status.st_dev), UInt64(truncatingIfNeeded: status.st_ino))
            if isDirectory || status.st_mode & S_IFMT == S_IFREG { return }
        } catch {
            throw GrantError(
                .notFound, "“\(shown)” cannot be shown to the program", cause: error.description, advice: UnexpandedHome.advice(for: word))
        }
        throw GrantError(
            .invalidDirectory, "“\(shown)” cannot be shown to the program", cause: "it is neither a directory nor a file",
            advice: "a socket, a device or a pipe leads out of the sandbox")
    }
}
