import GrantStore
import GrantSystem

/// The mounts of a table, each with the directory that it covers and the directory that it shows.
///
/// A grant in a mount with `-o submounts` shows the mounts inside its directory. Commands do not
/// know which mounts will have that option, so they count each mount inside.
package struct ReachedPlaces {
    private let table: MountTable
    private let mounts: [(covered: Place, shown: Place)]

    package init(_ table: MountTable) {
        self.table = table
        mounts = table.entries.map { (Place(below: $0.mountpoint, in: table), Place(root: $0)) }
    }

    /// The place of the path, then the places that mounts inside show, and mounts inside these.
    ///
    /// `path` is absolute and canonical. Nothing is opened.
    package func from(_ path: [UInt8]) -> [Place] {
        var reached = [Place(path, in: table)]
        var left = mounts
        var next = 0
        while next < reached.count {
            let place = reached[next]
            let inside = left.filter { place.holds($0.covered) }
            left.removeAll { place.holds($0.covered) }
            reached += inside.map(\.shown)
            next += 1
        }
        return reached
    }
}

extension MountRecord {
    /// The mounts of the daemon's namespace. Returns nil if they are those of `table`, or cannot be
    /// read.
    package func mountTable(unlike table: MountTable) -> MountTable? {
        guard process.isRunning, let bytes = try? File.contents(of: "/proc/\(pid)/mountinfo".utf8) else { return nil }
        let own = MountTable(parsing: bytes)
        return own.entries == table.entries ? nil : own
    }
}
