import GrantModel
import GrantStore
import GrantSystem

/// Checks that no grant or mount makes the filesystem show itself: a loop without end.
package struct LoopCheck {
    private let store: GrantStore
    private let table: MountTable
    private let mounts: [MountRecord]

    package init(store: GrantStore) throws(GrantError) {
        self.store = store
        table = try LoopCheck.currentTable()
        mounts = try store.mounts()
    }

    package static func currentTable() throws(GrantError) -> MountTable {
        do {
            return try MountTable.current()
        } catch {
            throw GrantError(.system, "the mount table cannot be read", cause: error.description)
        }
    }

    /// Throws `.invalidDirectory` if the directory (canonical) contains the store or lies in it.
    /// The store need not exist.
    package static func check(_ directory: [UInt8], store: String) throws(GrantError) {
        let table = try currentTable()
        let reached = ReachedPlaces(table).from(directory)
        let storePlace = Place(CanonicalPath.resolveWhatExists(Array(store.utf8)), in: table)
        if let place = reached.first(where: { $0.holds(storePlace) }) {
            throw refusal(
                directory,
                (place == reached[0]
                    ? "it holds" : "the mount at \(String(decoding: place.path, as: UTF8.self)) inside it shows")
                    + " the store \(store), and a program that can write there can grant itself anything",
                advice: "grant directories inside it, or keep the store elsewhere: --store or $GRANTFS_STORE"
            )
        }
        if storePlace.holds(reached[0]) { throw refusal(directory, "it lies in the store \(store)") }
    }

    /// Throws `.invalidDirectory` if a grant of the directory (canonical, on the mount `device`)
    /// would contain or lie in the store or one of its mounts.
    package func check(_ directory: [UInt8], device: DeviceNumber? = nil) throws(GrantError) {
        try LoopCheck.check(directory, store: store.directory)
        let place = Place(directory, in: table)
        for entry in ownMounts {
            let mountpoint = String(decoding: entry.mountpoint, as: UTF8.self)
            let mounted = DeviceNumber(major: entry.major, minor: entry.minor)
            if place.device == mounted || device == mounted || MountTable.path(directory, isAtOrBelow: entry.mountpoint) {
                throw LoopCheck.refusal(directory, "it lies inside the mount at \(mountpoint), which is of the same store")
            }
            if place.holds(Place(below: entry.mountpoint, in: table)) {
                throw LoopCheck.refusal(directory, "the mount at \(mountpoint), which is of the same store, lies inside it")
            }
        }
    }

    /// Throws `.mountFailed` if a mount at the canonical path would lie inside a grant or another
    /// mount of the store, or hide the store. A view may be mounted on the mountpoint that another
    /// mount has for it. `below`: that of the mount with this id, and nowhere else. `grants`: names and present paths.
    package func check(
        mountpoint: [UInt8], for shown: ShownViews, below: GrantID?, grants: [(name: GrantName, path: [UInt8])]
    ) throws(GrantError) {
        let place = Place(mountpoint, in: table)
        let advice = "choose a mountpoint elsewhere"
        let isOwn = isOwnMountpoint(mountpoint, place, of: shown, in: below)
        if below != nil, !isOwn {
            throw GrantError(
                .mountFailed, "\(String(decoding: mountpoint, as: UTF8.self)) cannot be a mountpoint",
                cause: "no mount of several views has it for the \(shown.description) any more")
        }
        let shown = String(decoding: mountpoint, as: UTF8.self)
        if place.holds(Place(Array(store.directory.utf8), in: table)) {
            throw GrantError(.mountFailed, "\(shown) cannot be a mountpoint", cause: "it would hide the store", advice: advice)
        }
        for entry in ownMounts where place.device == DeviceNumber(major: entry.major, minor: entry.minor) && !isOwn {
            throw GrantError(
                .mountFailed, "\(shown) cannot be a mountpoint", cause: "it lies inside a mount of the same store", advice: advice)
        }
        for grant in grants where Place(grant.path, in: table).holds(place) {
            throw GrantError(
                .mountFailed, "\(shown) cannot be a mountpoint", cause: "it lies inside the grant “\(grant.name)”", advice: advice)
        }
    }

    /// Whether a mount of this store has the mountpoint for the view, and the directory now at that path is in that mount.
    private func isOwnMountpoint(_ mountpoint: [UInt8], _ place: Place, of shown: ShownViews, in mount: GrantID?) -> Bool {
        guard let view = shown.onlyView else { return false }
        return mounts.contains { record in
            guard mount == nil || record.id == mount, let name = record.shown.mountpoint(of: view), let connection = record.connection
            else { return false }
            return CanonicalPath.join(record.mountpoint, name.bytes) == mountpoint && place.device == connection.device
        }
    }

    /// This store's mounts in the mount table, live or dead.
    private var ownMounts: [MountEntry] {
        mounts.compactMap { record in
            table.entries.last { entry in
                entry.type == GrantAdministrator.filesystemType
                    && (record.connection.map { $0.device == entry.device } ?? (entry.mountpoint == record.mountpoint))
            }
        }
    }

    private static func refusal(_ directory: [UInt8], _ cause: String, advice: String? = nil) -> GrantError {
        GrantError(
            .invalidDirectory, "“\(String(decoding: directory, as: UTF8.self))” cannot be granted", cause: cause, advice: advice)
    }
}

extension GrantAdministrator {
    /// Throws `.invalidDirectory` if the file or directory (canonical) overlaps the store's
    /// directory, which need not exist yet: a program that sees the store could grant itself
    /// anything.
    public static func checkShown(_ path: [UInt8], store: String) throws(GrantError) { try LoopCheck.check(path, store: store) }

    /// The same, and also if it contains or lies in a mount of the store.
    public func checkShown(_ path: [UInt8]) throws(GrantError) { try LoopCheck(store: store).check(path) }
}
