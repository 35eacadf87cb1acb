import GrantSystem

/// The location of a directory: its path, and its path within its filesystem. The latter is the same through every bind mount, so
/// locations are compared by both.
package struct Place: Hashable {
    package let path: [UInt8]
    let device: DeviceNumber?
    let pathInFilesystem: [UInt8]

    private init(path: [UInt8], device: DeviceNumber?, pathInFilesystem: [UInt8]) {
        self.path = path
        self.device = device
        self.pathInFilesystem = pathInFilesystem
    }

    /// `path` is absolute and canonical. Nothing is opened.
    package init(_ path: [UInt8], in table: MountTable) {
        guard let entry = table.entry(holding: path) else {
            self.init(path: path, device: nil, pathInFilesystem: path)
            return
        }
        let below = entry.mountpoint == [0x2F] ? path : Array(path.dropFirst(entry.mountpoint.count))
        let whole = entry.root == [0x2F] ? below : entry.root + (below == [0x2F] ? [] : below)
        let device = DeviceNumber(major: entry.major, minor: entry.minor)
        self.init(path: path, device: device, pathInFilesystem: whole.isEmpty ? [0x2F] : whole)
    }

    /// The directory under a mountpoint, which the mount hides.
    init(below mountpoint: [UInt8], in table: MountTable) {
        guard let slash = mountpoint.lastIndex(of: 0x2F), mountpoint.count > 1 else {
            self.init(mountpoint, in: table)
            return
        }
        let parent = Place(slash == 0 ? [0x2F] : Array(mountpoint[..<slash]), in: table)
        let name = Array(mountpoint[(slash + 1)...])
        self.init(path: mountpoint, device: parent.device, pathInFilesystem: CanonicalPath.join(parent.pathInFilesystem, name))
    }

    /// The directory that a mount shows, even if another mount covers it by now.
    init(root entry: MountEntry) {
        self.init(path: entry.mountpoint, device: entry.device, pathInFilesystem: entry.root)
    }

    /// Whether `other` is this directory or lies in it.
    package func holds(_ other: Place) -> Bool {
        if MountTable.path(other.path, isAtOrBelow: path) { return true }
        guard let device, device == other.device else { return false }
        return MountTable.path(other.pathInFilesystem, isAtOrBelow: pathInFilesystem)
    }

    package func meets(_ other: Place) -> Bool { holds(other) || other.holds(self) }
}
