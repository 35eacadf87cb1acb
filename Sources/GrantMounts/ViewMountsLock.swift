import Glibc
import GrantModel
import GrantStore
import GrantSystem

/// The lock that the process behind `grantfs mount --views` holds until it ends.
package final class ViewMountsLock {
    private let lock: FileLock
    private let file: String

    private static let prefix = "views-"

    /// Takes the lock, and removes the files of killed processes.
    ///
    /// - Parameter mount: The record of the mountpoints' mount.
    package init(of mount: GrantID, in store: GrantStore) throws(GrantError) {
        let known = Set(try store.mounts().map(\.id))
        let path = Self.file(of: mount, in: store)
        let made: FileLock
        do throws(Errno) {
            let directory = try FileDescriptor.open(store.runDirectory.utf8, O_RDONLY | O_DIRECTORY)
            var left: [[UInt8]] = []
            _ = try directory.forEachEntry(limit: .max) { _, _, name in
                let text = String(decoding: name, as: UTF8.self)
                let id = text.hasPrefix(Self.prefix) ? GrantID(String(text.dropFirst(Self.prefix.count))) : nil
                if let id, !known.contains(id) { left.append(Array(name)) }
            }
            for name in left { try DirectoryEntry.remove(directory.number, name, isDirectory: false) }
            made = try FileLock.make(path)
        } catch {
            throw GrantError(.storeUnavailable, "the store \(store.directory) cannot be written", cause: error.description)
        }
        file = path
        lock = made
    }

    deinit { unlink(file) }

    /// Whether a mount shows mountpoints of views that no process mounts any more.
    package static func isAbandoned(_ record: MountRecord, in store: GrantStore) -> Bool {
        guard record.shown.hasMountpoints, record.process.isRunning else { return false }
        do throws(Errno) {
            _ = try FileLock.take(file(of: record.id, in: store))
            return true
        } catch {
            // The process has it, or is about to make it.
            return false
        }
    }

    private static func file(of mount: GrantID, in store: GrantStore) -> String { "\(store.runDirectory)/\(prefix)\(mount)" }
}
