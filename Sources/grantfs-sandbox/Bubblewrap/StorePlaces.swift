import Glibc
import GrantAdministration
import GrantSystem

/// The paths at which the machine shows the store: its own, and those of other mounts of its filesystem.
struct StorePlaces {
    /// Canonical.
    let store: [UInt8]
    private let others: [[UInt8]]

    init(_ store: [UInt8], in table: MountTable) {
        self.store = store
        guard let own = table.entry(holding: store) else {
            others = []
            return
        }
        let below = store.dropFirst(own.mountpoint == [0x2F] ? 0 : own.mountpoint.count)
        let inFilesystem = (own.root == [0x2F] ? [] : own.root) + below
        let status = Self.status(of: store)
        others = table.entries.compactMap { entry in
            guard (entry.major, entry.minor) == (own.major, own.minor), MountTable.path(inFilesystem, isAtOrBelow: entry.root) else {
                return nil
            }
            let rest = inFilesystem.dropFirst(entry.root == [0x2F] ? 0 : entry.root.count)
            let place = (entry.mountpoint == [0x2F] ? [] : entry.mountpoint) + rest
            // Another mount may cover it.
            guard place != store, let found = Self.status(of: place), found.st_dev == status?.st_dev, found.st_ino == status?.st_ino else {
                return nil
            }
            return place
        }
    }

    var exists: Bool { Self.status(of: store) != nil }

    /// Those that a directory contains, relative to it: each empty, or with a slash first.
    func below(_ directory: [UInt8]) -> [[UInt8]] {
        ([store] + others).filter { MountTable.path($0, isAtOrBelow: directory) }
            .map { Array($0.dropFirst(directory == [0x2F] ? 0 : directory.count)) }
    }

    private static func status(of path: [UInt8]) -> stat? {
        var status = stat()
        return withCString(path, { lstat($0, &status) }) == 0 ? status : nil
    }
}
