import Glibc

/// Checks that only this user and root can remove or replace names in a directory.
///
/// A name then still leads to the file that this process made. A user with write access to a
/// directory may rename and exchange its entries. A descriptor does not help, because rename(2) and
/// unlink(2) use names. In a sticky directory such as /tmp the kernel protects the entries of
/// others. POSIX ACLs need no check of their own: no entry grants more than the mask, which the
/// mode shows as the group's bits.
public enum OwnDirectory {
    /// Why the directory is unsafe, as the cause of an error. Returns nil if it is safe.
    public static func objection(to directory: borrowing FileDescriptor) throws(Errno) -> String? {
        let status = try directory.status().st
        if let objection = objection(toOwner: status.st_uid) { return objection }
        // In a sticky directory an entry is its owner's, the directory's owner's, and root's.
        if status.st_mode & S_ISVTX != 0 || status.st_mode & 0o022 == 0 { return nil }
        if status.st_mode & 0o002 == 0, isPrivate(group: status.st_gid), !hasAccessList(directory) { return nil }
        return "others may write to it, and so replace files that are made there"
    }

    /// The owner of the root directory, who decides about everything below.
    ///
    /// In a user namespace it may be the overflow uid: the machine's root has no number there.
    private static let administrator: uid_t = {
        var status = stat()
        return stat("/", &status) == 0 ? status.st_uid : 0
    }()

    /// Whether this user controls the whole machine, or the namespace of this process.
    public static func isAdministrator(_ user: uid_t) -> Bool { user == 0 || user == administrator }

    /// Why this owner makes a directory or a link unsafe. Returns nil if it does not.
    ///
    /// A link is as safe as its directory and its owner.
    static func objection(toOwner owner: uid_t) -> String? {
        if owner == geteuid() || isAdministrator(owner) { return nil }
        return "it belongs to \(userName(owner) ?? "user \(owner)"), who could replace files that are made there"
    }

    /// The result of `open`.
    public struct Opened: ~Copyable {
        /// The directory's path, without links.
        public let path: [UInt8]
        public let objection: (path: [UInt8], cause: String)?
        /// For reading.
        public let directory: FileDescriptor

        /// Keeps the directory alone.
        public consuming func intoDirectory() -> FileDescriptor { directory }
    }

    /// Opens a directory as open(2) does, links followed, and checks it.
    ///
    /// For root, also checks every directory and link on the way. The objection comes with its
    /// path.
    ///
    /// - Parameter mode: Of the directories that are created if they are missing. nil creates none.
    ///   None is created behind an objection: ENOENT then.
    public static func open(_ path: [UInt8], creating mode: mode_t? = nil) throws(Errno) -> Opened {
        var current = try FileDescriptor.open("/".utf8, OpenFlags.path | O_DIRECTORY)
        var objection: (path: [UInt8], cause: String)?
        let isRoot = geteuid() == 0
        if isRoot, let cause = try self.objection(to: current) { objection = (Array("/".utf8), cause) }
        var rest = Array(path.split(separator: UInt8(ascii: "/")).reversed())
        var links = 0
        while let name = rest.popLast() {
            do throws(Errno) {
                current = try openDirectory(Array(name), in: current, creating: objection == nil ? mode : nil)
            } catch {
                guard error == Errno(ENOTDIR) else { throw error }
                // A link, if anything that leads on.
                let link = try FileDescriptor.openAt(current.number, name, OpenFlags.path | O_NOFOLLOW)
                let status = try link.status().st
                guard status.st_mode & S_IFMT == S_IFLNK else { throw error }
                links += 1
                guard links <= 40 else { throw Errno(ELOOP) }
                if isRoot, objection == nil, let cause = self.objection(toOwner: status.st_uid) {
                    objection = (try current.path() + [UInt8(ascii: "/")] + name, cause)
                }
                let text = try link.linkText()
                if text.first == UInt8(ascii: "/") { current = try FileDescriptor.open("/".utf8, OpenFlags.path | O_DIRECTORY) }
                rest += text.split(separator: UInt8(ascii: "/")).reversed()
                continue
            }
            if isRoot, objection == nil, let cause = try self.objection(to: current) { objection = (try current.path(), cause) }
        }
        let directory = try current.reopened(O_RDONLY | O_DIRECTORY)
        if objection == nil, let cause = try self.objection(to: directory) { objection = (try directory.path(), cause) }
        return Opened(path: try directory.path(), objection: objection, directory: directory)
    }

    /// Opens a directory of another one, links not followed, or creates it. ENOTDIR for a link.
    private static func openDirectory(
        _ name: [UInt8], in parent: borrowing FileDescriptor, creating mode: mode_t?
    ) throws(Errno) -> FileDescriptor {
        let flags = OpenFlags.path | O_DIRECTORY | O_NOFOLLOW
        do throws(Errno) {
            return try FileDescriptor.openAt(parent.number, name, flags)
        } catch {
            if mode == nil || error != Errno(ENOENT) { throw error }
        }
        guard let mode else { throw Errno(ENOENT) }
        do throws(Errno) {
            try DirectoryEntry.makeDirectory(parent.number, name, mode)
        } catch {
            // Another process was faster. Its directory is checked like an older one.
            guard error == Errno(EEXIST) else { throw error }
        }
        return try FileDescriptor.openAt(parent.number, name, flags)
    }

    /// Whether this user is the only member of the group.
    ///
    /// Many systems make a group of each user's name without other members.
    private static func isPrivate(group: gid_t) -> Bool {
        guard let user = userName(geteuid()) else { return false }
        var buffer = [CChar](repeating: 0, count: 65_536)
        var entry = Glibc.group()
        var found: UnsafeMutablePointer<Glibc.group>?
        guard getgrgid_r(group, &entry, &buffer, buffer.count, &found) == 0, let found, String(cString: found.pointee.gr_name) == user
        else { return false }
        var member = found.pointee.gr_mem
        while let name = member?.pointee {
            if String(cString: name) != user { return false }
            member = member?.advanced(by: 1)
        }
        return true
    }

    private static func userName(_ user: uid_t) -> String? {
        var buffer = [CChar](repeating: 0, count: 16_384)
        var entry = passwd()
        var found: UnsafeMutablePointer<passwd>?
        guard getpwuid_r(user, &entry, &buffer, buffer.count, &found) == 0, let found else { return nil }
        return String(cString: found.pointee.pw_name)
    }

    /// An access list that cannot be read counts as one.
    private static func hasAccessList(_ directory: borrowing FileDescriptor) -> Bool {
        do throws(Errno) {
            _ = try directory.attribute("system.posix_acl_access", limit: 65_536)
            return true
        } catch {
            return ![ENODATA, EOPNOTSUPP].contains(error.rawValue)
        }
    }
}
