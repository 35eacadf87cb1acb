import Glibc
import GrantModel
import LinuxFS

/// Looks for directories by inode number below the place where they were, for processes that may not open by handle.
///
/// What it looked through it remembers, so that many bookmarks of one place cost one look. It is bounded, stays on one
/// filesystem, follows no link, and what it gives is a guess: the caller compares identities.
final class Search {
    /// How many entries one resolver looks at, and how far below the place.
    private var budget = 100_000
    private let depth = 4
    private var places: Set<[UInt8]> = []
    private var index: [Key: [UInt8]] = [:]

    private struct Key: Hashable {
        let device: dev_t
        let inode: UInt64
    }

    /// The path of the directory with that number at or below `place`, which is a canonical path.
    func path(inode: UInt64, device: dev_t, near place: [UInt8]) -> [UInt8]? {
        if places.insert(place).inserted { look(below: place, device: device) }
        return index[Key(device: device, inode: inode)]
    }

    /// Breadth first, since most renames stay near.
    private func look(below place: [UInt8], device: dev_t) {
        var level = [place]
        for _ in 0..<depth where !level.isEmpty {
            var next: [[UInt8]] = []
            for path in level {
                guard budget > 0 else { return }
                guard let directory = try? CanonicalPath.open(path, O_RDONLY | O_NONBLOCK), let status = try? directory.status(),
                    status.st.st_dev == device, let listing = try? directory.subdirectories(limit: budget)
                else { continue }
                budget -= listing.looked
                for entry in listing.found {
                    let below = (path == [0x2F] ? path : path + [0x2F]) + entry.name
                    index[Key(device: device, inode: entry.inode)] = below
                    next.append(below)
                }
            }
            level = next
        }
    }
}
