import Glibc
import GrantModel
import GrantSystem

/// Looks for directories by inode number or tag below the place where they were.
///
/// What it looked through it remembers, so that many bookmarks of one place cost one look. It is bounded, stays on one
/// filesystem, follows no link, and what it gives is a guess: the caller compares identities.
final class Search {
    /// How many entries one resolver looks at, and how far below the place.
    private var budget = 100_000
    private let depth = 4
    private var places: Set<[UInt8]> = []
    private var index: [Key: [UInt8]] = [:]
    /// By place: the directories that carry a tag at or below it.
    private var tagged: [[UInt8]: [DirectoryTag: [Tagged]]] = [:]
    private let progress: () -> Void

    private struct Key: Hashable {
        let device: dev_t
        let inode: UInt64
    }

    /// A directory that carries a tag.
    struct Tagged {
        let path: [UInt8]
        let device: dev_t
        let inode: UInt64
    }

    init(progress: @escaping () -> Void) { self.progress = progress }

    /// The path of the directory with that number at or below `place`, which is a canonical path.
    func path(inode: UInt64, device: dev_t, near place: [UInt8]) -> [UInt8]? {
        if places.insert(place).inserted { look(below: place, device: device) }
        return index[Key(device: device, inode: inode)]
    }

    /// The paths of what has that number and may be a file, at or below `place`, which is a canonical path. Nothing of it is remembered.
    func files(inode: UInt64, near place: [UInt8]) -> [[UInt8]] {
        var found: [[UInt8]] = []
        var level = [place]
        for _ in 0..<depth where !level.isEmpty {
            var next: [[UInt8]] = []
            for path in level {
                guard budget > 0 else { return found }
                progress()
                let prefix = path == [0x2F] ? path : path + [0x2F]
                guard let directory = try? CanonicalPath.open(path, O_RDONLY | O_NONBLOCK) else { continue }
                let looked = try? directory.forEachEntry(limit: budget) { number, type, name in
                    if type == UInt8(truncatingIfNeeded: DT_DIR) {
                        next.append(prefix + Array(name))
                    } else if number == inode {
                        found.append(prefix + Array(name))
                    }
                }
                budget -= looked ?? 0
            }
            if !found.isEmpty { return found }
            level = next
        }
        return found
    }

    /// The directories at or below `place` that carry the tag; those that this process may not read carry none that it could see.
    func directories(tagged tag: DirectoryTag, device: dev_t, near place: [UInt8]) -> [Tagged] {
        if places.insert(place).inserted { look(below: place, device: device) }
        if tagged[place] == nil {
            var found: [DirectoryTag: [Tagged]] = [:]
            let paths = index.filter { $0.key.device == device }.map(\.value).filter { MountTable.path($0, isAtOrBelow: place) }
            for path in [place] + paths {
                progress()
                guard let (tag, directory) = Search.tag(at: path), directory.device == device else { continue }
                found[tag, default: []].append(directory)
            }
            tagged[place] = found
        }
        return tagged[place]?[tag] ?? []
    }

    /// The directory at a canonical path, if it carries a tag.
    static func tag(at path: [UInt8]) -> (tag: DirectoryTag, directory: Tagged)? {
        guard let opened = try? CanonicalPath.open(path, OpenFlags.path), let candidate = Candidate(opened), let tag = candidate.tag else {
            return nil
        }
        return (tag, Tagged(path: path, device: candidate.status.st.st_dev, inode: UInt64(truncatingIfNeeded: candidate.status.st.st_ino)))
    }

    /// Breadth first, since most renames stay near.
    private func look(below place: [UInt8], device: dev_t) {
        var level = [place]
        for _ in 0..<depth where !level.isEmpty {
            var next: [[UInt8]] = []
            for path in level {
                guard budget > 0 else { return }
                progress()
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
