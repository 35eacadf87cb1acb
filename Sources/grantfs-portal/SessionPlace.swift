import Glibc
import GrantAdministration
import GrantModel
import GrantSystem

/// Where a session shows its documents: `doc` in $XDG_RUNTIME_DIR. That directory has to be the user's own, and no other user may be able to put something else in its place:
/// that user would decide where the documents are shown.
enum SessionPlace {
    private static let name = Array("doc".utf8)

    /// Returns the place, and makes it if it is missing. No link is followed at its end or at the
    /// directory's, and nothing that is mounted there is asked. It throws `.usage` if its location
    /// is not configured, or `.mountFailed` if it must not be used.
    static func mountpoint() throws(GrantError) -> Mountpoint {
        let runtime = getenv("XDG_RUNTIME_DIR").map { String(cString: $0) } ?? ""
        guard runtime.hasPrefix("/") else {
            let cause = runtime.isEmpty ? "$XDG_RUNTIME_DIR is not set" : "$XDG_RUNTIME_DIR, \(runtime), is not an absolute path"
            throw GrantError(.usage, "there is no place for the documents", cause: cause, advice: advice)
        }
        var path = Array(runtime.utf8)
        // With a slash at the end a link would be followed.
        while path.count > 1, path.last == 0x2F { path.removeLast() }
        let directory = try asking(path) { () throws(Errno) in try FileDescriptor.open(path, OpenFlags.path | O_NOFOLLOW) }
        if let problem = problem(try asking(path) { () throws(Errno) in try directory.status() }) { throw refusal(path, problem) }
        let found = try asking(path) { () throws(Errno) in try directory.path() }
        if let problem = try asking(found, { () throws(Errno) in try problemOnTheWay(to: found, directory) }) {
            throw refusal(path, problem)
        }
        let place = CanonicalPath.join(found, name)
        if mkdirat(directory.number, "doc", 0o700) != 0, errno != EEXIST { throw refusal(place, Errno(errno).description) }
        let mountpoint = Mountpoint(canonical: place)
        // The caller that mounts inspects a mount that is already there.
        guard try mountpoint.mounted() == nil else { return mountpoint }
        let status = try asking(place) { () throws(Errno) in try DirectoryEntry.status(directory.number, name) }
        if let problem = problem(status) { throw refusal(place, problem) }
        return mountpoint
    }

    /// Why another user could exchange the directory after this check, or nil if only root and this
    /// user can. It inspects each directory on the way, from the root directory down: the entries
    /// of a directory that only these two may change stay there unless one of them moves them.
    /// `path` is canonical. `directory` is the directory that must be found there.
    private static func problemOnTheWay(to path: [UInt8], _ directory: borrowing FileDescriptor) throws(Errno) -> String? {
        let mounts = try MountTable.current()
        var current = try FileDescriptor.open([0x2F], OpenFlags.path | O_DIRECTORY)
        var shown = "/"
        // In a namespace of users root may have no number here. Everything below / is its owner's
        // anyway.
        let owner = try current.status().st.st_uid
        for name in path.split(separator: 0x2F) {
            let status = try current.status().st
            let isTrusted = [0, geteuid(), owner].contains(status.st_uid)
            // Where the sticky bit is set, only its owner can rename the next directory. The next
            // step checks that owner.
            if !isTrusted { return "\(shown), above it, belongs to another user, of the number \(status.st_uid)" }
            if status.st_mode & 0o022 != 0, status.st_mode & S_ISVTX == 0 {
                return "others may write to \(shown), above it, by its mode 0\(String(status.st_mode & 0o7777, radix: 8))"
            }
            current = try FileDescriptor.openBeneath(current.number, name, OpenFlags.path | O_DIRECTORY | O_NOFOLLOW, crossMounts: true)
            shown = (shown == "/" ? "" : shown) + "/" + String(decoding: name, as: UTF8.self)
            // The server of a filesystem decides which owners and modes it reports.
            let mount = try MountIdentity(of: current).entry(in: mounts)
            guard let mount else { return "\(shown) is in no mount that is known" }
            let users = Set(mount.superOptions.split(separator: ",")).intersection(["user_id=0", "user_id=\(geteuid())"])
            if mount.type.hasPrefix("fuse"), users.isEmpty { return "\(shown) is in a filesystem that another user serves" }
        }
        let (found, opened) = (try current.status().st, try directory.status().st)
        return found.st_dev == opened.st_dev && found.st_ino == opened.st_ino ? nil : "something else has come into its place"
    }

    private static func asking<Result: ~Copyable>(_ path: [UInt8], _ body: () throws(Errno) -> Result) throws(GrantError) -> Result {
        do throws(Errno) {
            return try body()
        } catch {
            throw refusal(path, error == Errno(ENOENT) ? "there is no such directory" : error.description)
        }
    }

    private static let advice = "--mountpoint DIR shows them elsewhere"

    private static func refusal(_ path: [UInt8], _ cause: String) -> GrantError {
        GrantError(
            .mountFailed, "the documents cannot be shown at \(String(decoding: path, as: UTF8.self))", cause: cause, advice: advice)
    }

    /// Why such a directory must not be used, or nil if it may.
    private static func problem(_ status: FileStatus) -> String? {
        let mode = status.st.st_mode
        if mode & S_IFMT == S_IFLNK { return "it is a symbolic link" }
        if mode & S_IFMT != S_IFDIR { return "it is not a directory" }
        if status.st.st_uid != geteuid() { return "it belongs to another user, of the number \(status.st.st_uid)" }
        if mode & 0o022 != 0 { return "others may write to it, by its mode 0\(String(mode & 0o7777, radix: 8))" }
        return nil
    }
}
