import Glibc
import GrantAdministration
import GrantModel
import GrantStore
import GrantSystem

/// The directories of active grants that were found, so that a program may ask for each file of an enumeration at little cost.
///
/// A result is valid as long as neither the store nor the mounts have changed, the grant has not
/// expired, and the same directory is at its path. Everything else is looked up again.
///
/// Locking: one lock around the table, held for an access.
final class FoundDirectories: Sendable {
    static let process = FoundDirectories()

    private struct Found {
        let expires: Instant?
        let identity: FileIdentity
        let device: UInt64
    }

    private struct Table {
        var stamp: GrantStore.ChangeStamp
        var mounts: UInt64
        var directories: [[UInt8]: Found] = [:]
    }

    /// By the store's directory.
    private let tables = Lock<[String: Table]>([:])

    /// Whether an active grant leads to a canonical path on the host.
    func isGranted(_ path: [UInt8], in environment: GrantEnvironment, mounts: UInt64) -> Bool {
        guard let directory = try? environment.storeDirectory() else { return false }
        if let (_, stamp) = OpenStores.known(directory), isFound(path, in: directory, stamp, mounts) { return true }
        // The stamp is from before the look at the store, so a change during it counts as one after it.
        guard let store = try? OpenStores.store(directory, create: false), let stamp = try? store.changeStamp(),
            let grants = try? store.grants(),
            let place = GrantedPlace.recorded(path, among: grants, mounts: mounts)
                ?? (try? GrantedPlace(path, administrator: environment.administrator()))
        else { return false }
        keep(place, in: directory, stamp, mounts)
        return true
    }

    private func isFound(_ path: [UInt8], in store: String, _ stamp: GrantStore.ChangeStamp, _ mounts: UInt64) -> Bool {
        let candidates = tables.withLock { tables -> [([UInt8], Found)] in
            guard let table = tables[store], table.stamp == stamp, table.mounts == mounts, !table.directories.isEmpty else { return [] }
            var found: [([UInt8], Found)] = []
            var directory = path
            while directory.count > 1 {
                if let known = table.directories[directory] { found.append((directory, known)) }
                while let last = directory.popLast(), last != UInt8(ascii: "/") {}
            }
            return found
        }
        let now = Instant(nanoseconds: Clock.realtime)
        return candidates.contains { directory, found in
            found.expires.map { now < $0 } ?? true && Self.identity(directory).map { $0 == (found.identity, found.device) } ?? false
        }
    }

    private func keep(_ place: GrantedPlace, in store: String, _ stamp: GrantStore.ChangeStamp, _ mounts: UInt64) {
        // A lease, which may end at any time, is asked each time. Without a birth time another directory may look the same.
        guard place.grant.fleetActivation == nil, let (identity, device) = Self.identity(place.directory), identity.birthTime != nil,
            identity.inode == place.grant.bookmark.identity.inode
        else { return }
        let found = Found(expires: place.grant.expires, identity: identity, device: device)
        tables.withLock { tables in
            var table = tables[store] ?? Table(stamp: stamp, mounts: mounts)
            if table.stamp != stamp || table.mounts != mounts { table = Table(stamp: stamp, mounts: mounts) }
            table.directories[place.directory] = found
            tables[store] = table
        }
    }

    private static func identity(_ directory: [UInt8]) -> (FileIdentity, UInt64)? {
        guard let status = try? FileDescriptor.open(directory, OpenFlags.path | O_NOFOLLOW).status() else { return nil }
        return (FileIdentity(status), UInt64(status.st.st_dev))
    }
}
