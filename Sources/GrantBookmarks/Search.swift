import Glibc
import GrantModel
import GrantSystem

/// Searches for directories by inode number or tag near their former path.
///
/// It caches its scans, so that many bookmarks below one root cost one scan. It is bounded, stays
/// on one filesystem and follows no link. Its results are guesses: the caller compares identities.
final class Search {
    /// How many entries one resolver scans, and how many levels deep.
    private var budget = 100_000
    private let depth = 4
    private var scannedRoots: Set<[UInt8]> = []
    private var index: [Key: [UInt8]] = [:]
    /// By root: the directories at or below it that carry a tag.
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

    /// Returns the path of the directory with that inode number, at or below `place`.
    ///
    /// `place`: a canonical path.
    func path(inode: UInt64, device: dev_t, near place: [UInt8]) -> [UInt8]? {
        if scannedRoots.insert(place).inserted { scan(below: place, device: device) }
        return index[Key(device: device, inode: inode)]
    }

    /// Returns the paths with that inode number that may be files, at or below `place`.
    ///
    /// `place`: a canonical path. Nothing is cached.
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

    /// Returns the directories at or below `place` that carry the tag.
    ///
    /// Omits directories that this process may not read.
    func directories(tagged tag: DirectoryTag, device: dev_t, near place: [UInt8]) -> [Tagged] {
        if scannedRoots.insert(place).inserted { scan(below: place, device: device) }
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

    /// Returns the directory at a canonical path with its tag, or nil if it carries none.
    static func tag(at path: [UInt8]) -> (tag: DirectoryTag, directory: Tagged)? {
        guard let opened = try? CanonicalPath.open(path, OpenFlags.path), let candidate = Candidate(opened), let tag = candidate.tag else {
            return nil
        }
        return (tag, Tagged(path: path, device: candidate.status.st.st_dev, inode: UInt64(truncatingIfNeeded: candidate.status.st.st_ino)))
    }

    /// Scans breadth first, since most renames stay near.
    private func scan(below place: [UInt8], device: dev_t) {
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
