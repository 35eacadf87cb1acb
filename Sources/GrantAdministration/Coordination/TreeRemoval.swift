import Glibc
import GrantModel
import GrantSystem

/// Removes trees that this process has made, by descriptors: no link is followed, nothing that is mounted is entered, and no way leads upwards.
///
/// A directory that lies deeper is first moved to the top, and then emptied there. So three descriptors are open at a time, however deep a tree is, and nobody
/// who moves a directory out of the tree meanwhile can have anything removed that lies beside it.
enum TreeRemoval {
    /// Removes what lies in `directory`, and then its name in `parent`, as far as that name still stands for it. Nobody else may be able to change what is in
    /// `directory`; the kernel removes a name only of a directory that is empty, so whoever may change `parent` can make this fail and nothing else.
    ///
    /// ESTALE when the name stands for something else, which stays as it is.
    static func remove(
        _ directory: borrowing FileDescriptor, named name: [UInt8], in parent: borrowing FileDescriptor
    ) throws(Errno) {
        try empty(directory)
        guard FileKey(try DirectoryEntry.status(parent.number, name)) == FileKey(try directory.status()) else { throw Errno(ESTALE) }
        try DirectoryEntry.remove(parent.number, name, isDirectory: true)
    }

    private static func empty(_ top: borrowing FileDescriptor) throws(Errno) {
        // A directory as it was copied may be closed to its owner.
        try? top.setMode(0o700)
        let listed = try top.reopened(O_RDONLY | O_DIRECTORY)
        var directories = try removeFiles(in: listed)
        var moved: UInt64 = 0
        let prefix = ".grantfs-removed-\(GrantID.random())-"
        while let name = directories.popLast() {
            let directory = try open(name, in: top)
            for below in try removeFiles(in: directory) {
                // What is moved to another directory has to be its user's to write to.
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

    /// Removes all that is no directory. The names of those that are.
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
                // A filesystem need not say in a listing what a name stands for.
                guard error == Errno(EISDIR) else { throw error }
                directories.append(name)
            }
        }
        return directories
    }
}
