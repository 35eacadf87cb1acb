import CGrantSystem
import Glibc

/// A directory that only this user can enter, beside the place of the objects made in it.
///
/// Other users who may change names around it can rename the directory, or remove it while it is
/// empty. They cannot reach anything in it. So an object made in it by name is the object that was
/// made, and gets its owner, mode and attributes before others can open it.
///
/// It has the sticky bit, which has no effect there. By it other processes of this user distinguish
/// it from a directory that is in use for long.
public final class OwnStaging {
    /// For system calls that take a directory and a name.
    public let directory: FileDescriptor
    private let parent: FileDescriptor
    private let name: [UInt8]

    /// Makes it in `parent` under the name `prefix` with random hexadecimal digits.
    ///
    /// - Throws: The errors of mkdir(2), and ESTALE if another process exchanges it before it is
    ///   open.
    public init(in parent: borrowing FileDescriptor, prefix: [UInt8], digits: Int) throws(Errno) {
        let beside = try parent.reopened(OpenFlags.path | O_DIRECTORY)
        let name = try OwnStaging.make(in: beside, prefix, digits)
        directory = try OwnStaging.open(name, in: beside)
        self.parent = beside
        self.name = name
    }

    /// Opens the new directory. Removes it if that fails.
    private static func open(_ name: [UInt8], in parent: borrowing FileDescriptor) throws(Errno) -> FileDescriptor {
        do throws(Errno) {
            let made = try FileDescriptor.openBeneath(parent.number, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW)
            guard try isOwn(made, in: parent), try isEmpty(made) else { throw Errno(ESTALE) }
            return made
        } catch {
            try? DirectoryEntry.remove(parent.number, name, isDirectory: true)
            throw error
        }
    }

    private static func make(in parent: borrowing FileDescriptor, _ prefix: [UInt8], _ digits: Int) throws(Errno) -> [UInt8] {
        for _ in 0..<16 {
            let name = prefix + (0..<digits).map { _ in Array("0123456789abcdef".utf8)[Int.random(in: 0..<16)] }
            do throws(Errno) {
                try DirectoryEntry.makeDirectory(parent.number, name, 0o1700)
                return name
            } catch {
                if error != Errno(EEXIST) { throw error }
            }
        }
        throw Errno(EEXIST)
    }

    /// Whether a directory in `parent` belongs to this user and is closed to all others.
    ///
    /// Its access list gives nothing: the group's bits are the list's mask.
    public static func isOwn(_ directory: borrowing FileDescriptor, in parent: borrowing FileDescriptor) throws(Errno) -> Bool {
        let (status, above) = (try directory.status(), try parent.status())
        return status.st.st_mode & S_IFMT == S_IFDIR && status.st.st_uid == geteuid() && status.st.st_mode & 0o077 == 0
            && status.mount_id == above.mount_id && status.st.st_dev == above.st.st_dev
    }

    private static func isEmpty(_ directory: borrowing FileDescriptor) throws(Errno) -> Bool {
        var isEmpty = true
        _ = try directory.forEachEntry(limit: 3) { _, _, _ in isEmpty = false }
        return isEmpty
    }

    /// Removes the directory if it is empty and still has its name.
    public func remove() {
        guard let own = try? directory.status().st, let found = try? DirectoryEntry.status(parent.number, name).st,
            own.st_ino == found.st_ino, own.st_dev == found.st_dev
        else { return }
        try? DirectoryEntry.remove(parent.number, name, isDirectory: true)
    }

    deinit { remove() }
}
