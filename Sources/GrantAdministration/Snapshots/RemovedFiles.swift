import Glibc
import GrantModel
import GrantSystem

/// Keeps what an undo has taken away, in the snapshot's directory `after`, and which staging directories it has made, in `staging`.
struct RemovedFiles {
    private let saved: Int32
    private let number: Int

    /// - Parameter saved: the snapshot's directory, which stays open.
    init(_ saved: borrowing FileDescriptor, number: Int) {
        self.saved = saved.number
        self.number = number
    }

    /// Moves `name` of a directory that only this user can enter to `path` in `after`, or copies it if that is another filesystem.
    func keep(_ name: [UInt8], in directory: borrowing FileDescriptor, as path: [UInt8]) throws(Errno) {
        let (parentPath, lastName) = TreePath.split(path)
        var target = try FileDescriptor.openBeneath(saved, Array("after/\(number)".utf8), O_RDONLY | O_DIRECTORY)
        for part in parentPath.split(separator: 0x2F) {
            target = try RemovedFiles.directory(Array(part), in: target)
        }
        // Left by an earlier call, or where a directory has to be.
        try? DirectoryEntry.remove(target.number, lastName, isDirectory: false)
        do throws(Errno) {
            return try DirectoryEntry.move(directory.number, name, to: target.number, lastName)
        } catch {
            // A directory left by an earlier call.
            if error == Errno(EEXIST) { return try DirectoryEntry.move(directory.number, name, to: target.number, name) }
            guard error == Errno(EXDEV) else { throw error }
        }
        let copy = TreeCopy(ownName: [], progress: SnapshotProgress(nil)) {}
        copy.opensClosed = true
        do throws(GrantError) {
            try copy.copy(name, in: directory, into: target)
        } catch {
            throw Errno(error.code == .permission ? EACCES : EIO)
        }
        try? DirectoryEntry.rename(target.number, name, to: lastName)
        try RemovedFiles.remove(name, in: directory)
    }

    /// Opens or makes a directory in `after`. A file other than a directory that an earlier call
    /// has kept there gets another name.
    private static func directory(_ name: [UInt8], in parent: borrowing FileDescriptor) throws(Errno) -> FileDescriptor {
        for number in 0..<1_000 {
            do throws(Errno) {
                try DirectoryEntry.makeDirectory(parent.number, name, 0o700)
            } catch {
                if error != Errno(EEXIST) { throw error }
            }
            do throws(Errno) {
                return try FileDescriptor.openBeneath(parent.number, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW)
            } catch {
                if error != Errno(ENOTDIR), error != Errno(ELOOP) { throw error }
            }
            do throws(Errno) {
                try DirectoryEntry.move(parent.number, name, to: parent.number, name.prefix(240) + Array(".kept-\(number)".utf8))
            } catch {
                if error != Errno(EEXIST) { throw error }
            }
        }
        throw Errno(EEXIST)
    }

    /// Records a staging directory, so that a later call knows it for one if this process is killed.
    func record(_ staging: FileStatus) throws(Errno) {
        do throws(Errno) {
            try DirectoryEntry.makeDirectory(saved, Array("staging".utf8), 0o700)
        } catch {
            if error != Errno(EEXIST) { throw error }
        }
        _ = try FileDescriptor.openAt(saved, RemovedFiles.recordName(staging), O_WRONLY | O_CREAT | O_NOFOLLOW, mode: 0o600)
    }

    /// Whether a directory was recorded as one.
    func isRecorded(_ staging: FileStatus) -> Bool { (try? DirectoryEntry.status(saved, RemovedFiles.recordName(staging))) != nil }

    private static func recordName(_ staging: FileStatus) -> [UInt8] {
        Array("staging/\(staging.st.st_dev)-\(staging.st.st_ino)-\(FileKey(staging).born)".utf8)
    }

    /// Removes a file or a tree. A tree is removed with its owner's rights: processes that are in it can still change names there.
    static func remove(_ name: [UInt8], in directory: borrowing FileDescriptor) throws(Errno) {
        let status = try DirectoryEntry.status(directory.number, name).st
        guard status.st_mode & S_IFMT == S_IFDIR else { return try DirectoryEntry.remove(directory.number, name, isDirectory: false) }
        let tree = try FileDescriptor.openBeneath(directory.number, name, OpenFlags.path | O_DIRECTORY | O_NOFOLLOW)
        try TreeRemoval.remove(tree, named: name, in: directory, asOwner: true)
    }
}
