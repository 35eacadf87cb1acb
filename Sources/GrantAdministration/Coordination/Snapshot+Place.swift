import Glibc
import GrantModel
import GrantSystem

extension Snapshot {
    /// Where a snapshot is to be.
    struct Place: ~Copyable {
        let parent: FileDescriptor
        /// Of the directory that it is to lie in, without links.
        let path: [UInt8]
        let name: [UInt8]
        var shown: String { "“\(String(decoding: CanonicalPath.join(path, name), as: UTF8.self))”" }

        /// `.permission` where others could put something else in the place of what is made there, `.system` where there is no such directory.
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

        /// Throws when something stands there.
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

    /// A snapshot that is being made, of this user alone (0700). It is locked as long as its process lives, so that others can tell it from what was left behind.
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
                    // Somebody else's sweep may have come before the lock.
                    guard try made.tryLock() else { continue }
                    let status = try made.status()
                    if status.st.st_nlink == 0 { continue }
                    guard status.st.st_uid == geteuid(), status.mount_id == mount else { throw Errno(ESTALE) }
                    // What a directory above has for new files is not for copies.
                    for attribute in ["system.posix_acl_default", "system.posix_acl_access"] { try? made.removeAttribute(attribute) }
                    try made.setMode(0o700)
                    return Staging(name: name, directory: made, key: FileKey(status))
                }
            } catch {
                throw place.failure(error)
            }
        }

        /// Gives it its name, in one step. ESTALE, within the error, when the names stand for something else, before or afterwards.
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

        /// As far as that is possible; what stays goes with the next snapshot there.
        func remove(from place: borrowing Place) { try? TreeRemoval.remove(directory, named: name, in: place.parent) }

        /// Removes what processes have left behind that were killed: this user's, nobody else's to enter, and locked by nobody.
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
