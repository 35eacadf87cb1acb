import Glibc
import GrantModel
import GrantMounts
import GrantSystem

// The search accepts a file only if each user who may have put it there could change this program as well.
extension CompanionProgram {
    private static let othersMayWrite: mode_t = 0o022

    /// Throws `.notFound` if it is in neither place, `.permission` if it must not be started.
    func find() throws(GrantError) -> FileDescriptor {
        let executable = CompanionProgram.executable
        let place: [UInt8]
        do throws(Errno) {
            place = try CanonicalPath.target(of: Array(executable.utf8))
        } catch {
            throw GrantError(.system, "\(fileName) cannot be found", cause: "\(executable): \(error)")
        }
        let own = CanonicalPath.parent(of: place)
        let installed = CanonicalPath.join(CanonicalPath.parent(of: own), Array("libexec/grantfs".utf8))
        for directory in [own, installed] {
            let file: FileDescriptor
            do throws(Errno) {
                file = try FileDescriptor.open(CanonicalPath.join(directory, Array(fileName.utf8)), OpenFlags.path | O_NOFOLLOW)
            } catch {
                if error == Errno(ENOENT) || error == Errno(ENOTDIR) { continue }
                throw GrantError(.system, "\(shown(directory)) cannot be started", cause: error.description)
            }
            if let flaw = flaw(of: file, in: directory, beside: own) {
                throw GrantError(
                    .permission, "\(shown(directory)) is not started", cause: flaw, advice: "install the package \(package) again")
            }
            return file
        }
        throw GrantError(
            .notFound, "\(fileName) is missing", cause: "there is no \(shown(own)) and no \(shown(installed))",
            advice: "install the package \(package), or copy it to where grantfs is")
    }

    private func shown(_ directory: [UInt8]) -> String { VisibleText.of(CanonicalPath.join(directory, Array(fileName.utf8))) }

    /// The reason why the file must not be started, or nil. `own`: the directory of this program.
    private func flaw(of file: borrowing FileDescriptor, in directory: [UInt8], beside own: [UInt8]) -> String? {
        var (program, companion) = (stat(), stat())
        guard stat(CompanionProgram.executable, &program) == 0, fstat(file.number, &companion) == 0 else { return "it cannot be examined" }
        if companion.st_mode & S_IFMT != S_IFREG { return "it is not a regular file" }
        if companion.st_dev == program.st_dev, companion.st_ino == program.st_ino { return "it is grantfs itself" }
        if companion.st_mode & (S_ISUID | S_ISGID) != 0 { return "it has a set-id bit" }
        let owners = [0, geteuid(), program.st_uid]
        // Groups of the same mode may have other members, and an access list names other users.
        let changeable = companion.st_mode & Self.othersMayWrite
        let isAlike = changeable & ~program.st_mode == 0 && companion.st_gid == program.st_gid && !hasAccessList(file)
        guard owners.contains(companion.st_uid), changeable == 0 || isAlike else {
            return "it is not as protected from other users as grantfs"
        }
        guard let holder = status(of: own) else { return "it cannot be examined" }
        let isPlaced =
            directory == own ? isProtected(companion, besideProgramIn: holder) : isProtected(directory, beside: holder, owners: owners)
        return isPlaced ? nil : "other users may have put it there"
    }

    /// Whoever may write to the directory of this program can replace this program as well, unless the directory has the sticky bit, as
    /// /tmp has. There every user can make a hard link to a program of root.
    private func isProtected(_ companion: stat, besideProgramIn holder: stat) -> Bool {
        let isSticky = holder.st_mode & S_ISVTX != 0 && holder.st_mode & Self.othersMayWrite != 0
        return !isSticky || companion.st_nlink == 1 && [0, geteuid()].contains(companion.st_uid)
    }

    /// `directory` is `libexec/grantfs` beside the directory of this program, whose mode bounds what others may do above both.
    private func isProtected(_ directory: [UInt8], beside holder: stat, owners: [uid_t]) -> Bool {
        let above = CanonicalPath.parent(of: directory)
        guard let top = status(of: CanonicalPath.parent(of: above)), top.st_mode & Self.othersMayWrite & ~holder.st_mode == 0 else {
            return false
        }
        return [above, directory].allSatisfy { path in
            guard let found = status(of: path) else { return false }
            return found.st_mode & S_IFMT == S_IFDIR && found.st_mode & Self.othersMayWrite == 0 && owners.contains(found.st_uid)
        }
    }

    /// lstat(2)
    private func status(of path: [UInt8]) -> stat? {
        var status = stat()
        return withCString(path) { lstat($0, &status) } == 0 ? status : nil
    }

    private func hasAccessList(_ file: borrowing FileDescriptor) -> Bool {
        do throws(Errno) {
            return try !file.attribute("system.posix_acl_access", limit: 65_536).isEmpty
        } catch {
            return error != Errno(ENODATA) && error != Errno(EOPNOTSUPP)
        }
    }
}
