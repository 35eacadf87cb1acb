import Glibc
import GrantModel
import GrantSystem

/// Removes trees that this process has made. It works with descriptors, follows no link, enters no mount, and never goes up.
///
/// A nested directory is first moved to the top, and then emptied there. So three descriptors are open at a time, however deep the
/// tree, and moving a directory out of the tree meanwhile cannot make it remove anything else.
package enum TreeRemoval {
    /// Empties `directory`, then removes its name from `parent` if that is still the same directory. No other user may be able to
    /// change `directory`, unless `owner` is set. The kernel removes only empty directories, so the worst that a writer of `parent` can do is make this fail.
    ///
    /// ESTALE if the name is another file, which stays.
    ///
    /// - Parameter owner: empties the directory with the rights of the directory's owner, who may change it meanwhile.
    package static func remove(
        _ directory: borrowing FileDescriptor, named name: [UInt8], in parent: borrowing FileDescriptor, asOwner owner: Bool = false
    ) throws(Errno) {
        if owner {
            let status = try directory.status().st
            try ThreadRights.acting(as: status.st_uid, status.st_gid) { () throws(Errno) in try empty(directory) }
        } else {
            try empty(directory)
        }
        guard FileKey(try DirectoryEntry.status(parent.number, name)) == FileKey(try directory.status()) else { throw Errno(ESTALE) }
        try DirectoryEntry.remove(parent.number, name, isDirectory: true)
    }

    private static func empty(_ top: borrowing FileDescriptor) throws(Errno) {
        // A copied directory may be closed to its owner.
        try? top.setMode(0o700)
        let listed = try top.reopened(O_RDONLY | O_DIRECTORY)
        var directories = try removeFiles(in: listed)
        var moved: UInt64 = 0
        let prefix = ".grantfs-removed-\(GrantID.random())-"
        while let name = directories.popLast() {
            let directory = try open(name, in: top)
            for below in try removeFiles(in: directory) {
                // To be moved to another directory, it has to be writable for its user.
                _ = try open(below, in: directory)
                moved += 1
                let newName = Array((prefix + String(moved)).utf8)
                try DirectoryEntry.move(directory.number, below, to: top.number, newName)
                directories.append(newName)
            }
            try DirectoryEntry.remove(top.number, name, isDirectory: true)
        }
    }

    private static func open(_ name: [UInt8], in directory: borrowing FileDescriptor) throws(Errno) -> FileDescriptor {
        let path = try FileDescriptor.openBeneath(directory.number, name, OpenFlags.path | O_DIRECTORY | O_NOFOLLOW)
        try? path.setMode(0o700)
        return try path.reopened(O_RDONLY | O_DIRECTORY)
    }

    /// Removes everything but directories, and returns their names.
    private static func removeFiles(in directory: borrowing FileDescriptor) throws(Errno) -> [[UInt8]] {
        var names: [(name: [UInt8], isDirectory: Bool)] = []
        _ = try directory.forEachEntry(limit: .max) { _, type, name in names.append((Array(name), type == UInt8(DT_DIR))) }
        var directories: [[UInt8]] = []
        for (name, isDirectory) in names {
            if isDirectory {
                directories.append(name)
                continue
            }
            do throws(Errno) {
                try DirectoryEntry.remove(directory.number, name, isDirectory: false)
            } catch {
                // The type in a listing may be unknown, depending on the filesystem.
                guard error == Errno(EISDIR) else { throw error }
                directories.append(name)
            }
        }
        return directories
    }
}
