import Glibc
import GrantModel
import GrantSystem

/// Workplaces of documents (`DocumentWorkplace`) that no daemon uses and whose stores are gone.
///
/// A daemon holds a lock on each of its workplaces, which ends with it. So an unlocked one is
/// unused, regardless of its store.
enum AbandonedWorkplaces {
    /// The largest number of inspected entries of a directory.
    private static let mostEntries = 16_384

    /// Locks a workplace that was just made. Throws ESTALE if another daemon has taken it for an abandoned one.
    static func hold(
        _ directory: borrowing FileDescriptor, named name: [UInt8], in parent: borrowing FileDescriptor
    ) throws(Errno) -> FileDescriptor {
        let hold = try directory.reopened(O_RDONLY | O_DIRECTORY)
        do throws(Errno) {
            guard try hold.tryLock() else { throw Errno(ESTALE) }
        } catch {
            // A filesystem without locks: `end` finds none to take there either.
            if error == Errno(ESTALE) { throw error }
        }
        guard FileKey(try DirectoryEntry.status(parent.number, name)) == FileKey(try directory.status()) else { throw Errno(ESTALE) }
        return hold
    }

    /// Ends the abandoned workplaces in a directory. An empty workplace is removed, the contents of
    /// another are kept (`KeptWorkplace`). Returns the new names of the kept workplaces.
    ///
    /// - Parameters:
    ///   - owner: the owner of workplaces there.
    ///   - isKnown: whether this store has a record of the workplace with these digits.
    static func end(in parent: borrowing FileDescriptor, owner: uid_t?, isKnown: (String) -> Bool) -> [[UInt8]] {
        guard let owner, let listed = try? parent.reopened(O_RDONLY | O_DIRECTORY) else { return [] }
        var names: [[UInt8]] = []
        _ = try? listed.forEachEntry(limit: mostEntries) { _, _, name in
            let name = Array(name)
            if isWorkplace(name), !isKnown(String(decoding: name.suffix(16), as: UTF8.self)) { names.append(name) }
        }
        return names.compactMap { name in (try? end(name, in: listed, owner: owner)) ?? nil }
    }

    /// The prefix and 16 hexadecimal digits.
    private static func isWorkplace(_ name: [UInt8]) -> Bool {
        let prefix = Array(DocumentWorkplace.prefix.utf8)
        return name.count == prefix.count + 16 && name.starts(with: prefix)
            && name.suffix(16).allSatisfy { Hexadecimal.value(of: $0) != nil && !(0x41...0x46).contains($0) }
    }

    private static func end(_ name: [UInt8], in parent: borrowing FileDescriptor, owner: uid_t) throws(Errno) -> [UInt8]? {
        let directory = try FileDescriptor.openBeneath(parent.number, name, OpenFlags.path | O_DIRECTORY | O_NOFOLLOW)
        let status = try directory.status()
        // One with the sticky bit is being made (`OwnStaging`).
        guard status.st.st_uid == owner, status.st.st_mode & 0o7777 == 0o700 else { return nil }
        let lock = try directory.reopened(O_RDONLY | O_DIRECTORY)
        guard try lock.tryLock() else { return nil }
        return try end(name, in: parent, directory, lockedBy: lock)
    }

    private static func end(
        _ name: [UInt8], in parent: borrowing FileDescriptor, _ directory: borrowing FileDescriptor, lockedBy lock: borrowing FileDescriptor
    ) throws(Errno) -> [UInt8]? {
        var isEmpty = true
        _ = try lock.forEachEntry(limit: 3) { _, _, _ in isEmpty = false }
        if isEmpty {
            try DirectoryEntry.remove(parent.number, name, isDirectory: true)
            return nil
        }
        return try KeptWorkplace.keep(directory, named: name, in: parent, document: [])
    }
}
