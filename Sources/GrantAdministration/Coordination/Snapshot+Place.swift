import Glibc
import GrantModel
import GrantSystem

extension Snapshot {
    /// The destination of a snapshot.
    struct Place: ~Copyable {
        let parent: FileDescriptor
        /// The path of the parent directory, without links.
        let path: [UInt8]
        let name: [UInt8]
        var shown: String { "“\(String(decoding: CanonicalPath.join(path, name), as: UTF8.self))”" }

        /// Opens the place of a snapshot. Throws `.permission` if others could replace the files
        /// made there, `.system` if the directory does not exist.
        static func open(parent path: [UInt8], name: [UInt8]) throws(GrantError) -> Place {
            let opened = try look(at: path)
            let canonical = opened.path
            guard let (directory, cause) = opened.objection else {
                return Place(parent: opened.intoDirectory(), path: canonical, name: name)
            }
            throw GrantError(
                .permission, "no snapshot can be made in “\(String(decoding: canonical, as: UTF8.self))”",
                cause: directory == canonical ? cause : "“\(String(decoding: directory, as: UTF8.self))” is not safe: \(cause)",
                advice:
                    "name a place in a directory that \(geteuid() == 0 ? "root alone" : "you alone") may write to, or in a sticky one such as /tmp"
            )
        }

        private static func look(at path: [UInt8]) throws(GrantError) -> OwnDirectory.Opened {
            do throws(Errno) {
                return try OwnDirectory.open(path)
            } catch {
                throw GrantError(
                    .system, "no snapshot can be made in “\(String(decoding: path, as: UTF8.self))”", cause: error.description)
            }
        }

        /// Throws if something exists there already.
        func expectNothing() throws(GrantError) {
            if (try? DirectoryEntry.status(parent.number, name)) != nil { throw alreadyExists }
        }

        var alreadyExists: GrantError {
            GrantError(
                .alreadyExists, "the snapshot \(shown) cannot be made", cause: "something stands there", advice: "choose another name")
        }

        func failure(_ error: Errno) -> GrantError {
            GrantError(.system, "the snapshot \(shown) cannot be made", cause: error.description)
        }
    }

    /// A snapshot in progress, accessible to this user alone (0700). Its process holds a lock on it, so that others can tell it from an
    /// abandoned one.
    struct Staging: ~Copyable {
        let name: [UInt8]
        let directory: FileDescriptor
        let key: FileKey

        static func begin(in place: borrowing Place) throws(GrantError) -> Staging {
            sweep(place)
            do throws(Errno) {
                let mount = try place.parent.status().mount_id
                while true {
                    let name = Snapshot.prefix + Array(GrantID.random().description.utf8)
                    try DirectoryEntry.makeDirectory(place.parent.number, name, 0o700)
                    let made = try FileDescriptor.openAt(place.parent.number, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW)
                    // Another process's sweep may have come before the lock.
                    guard try made.tryLock() else { continue }
                    let status = try made.status()
                    if status.st.st_nlink == 0 { continue }
                    guard status.st.st_uid == geteuid(), status.mount_id == mount else { throw Errno(ESTALE) }
                    // Default ACLs of the parent directory are not meant for copies.
                    for attribute in ["system.posix_acl_default", "system.posix_acl_access"] { try? made.removeAttribute(attribute) }
                    try made.setMode(0o700)
                    return Staging(name: name, directory: made, key: FileKey(status))
                }
            } catch {
                throw place.failure(error)
            }
        }

        /// Gives the snapshot its final name in one step. Fails with ESTALE if one of the names is another file, before or afterwards.
        func publish(in place: borrowing Place) throws(GrantError) {
            do throws(Errno) {
                try expect(name, in: place)
                try DirectoryEntry.rename(place.parent.number, name, to: place.name)
                try expect(place.name, in: place)
            } catch {
                throw error == Errno(EEXIST) ? place.alreadyExists : place.failure(error)
            }
        }

        private func expect(_ name: [UInt8], in place: borrowing Place) throws(Errno) {
            guard FileKey(try DirectoryEntry.status(place.parent.number, name)) == key else { throw Errno(ESTALE) }
        }

        /// Removes it, best effort. The next snapshot there removes the rest.
        func remove(from place: borrowing Place) { try? TreeRemoval.remove(directory, named: name, in: place.parent) }

        /// Removes directories that killed processes have left behind: of this user, mode 0700, and
        /// unlocked.
        private static func sweep(_ place: borrowing Place) {
            guard let listed = try? place.parent.reopened(O_RDONLY | O_DIRECTORY) else { return }
            var left: [[UInt8]] = []
            _ = try? listed.forEachEntry(limit: .max) { _, _, name in if name.starts(with: Snapshot.prefix) { left.append(Array(name)) } }
            for name in left {
                guard let directory = try? FileDescriptor.openBeneath(place.parent.number, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW),
                    let status = try? directory.status().st, status.st_uid == geteuid(), status.st_mode & 0o077 == 0,
                    (try? directory.tryLock()) == true
                else { continue }
                try? TreeRemoval.remove(directory, named: name, in: place.parent)
            }
        }
    }
}
