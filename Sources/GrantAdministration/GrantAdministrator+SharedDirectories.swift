import GrantBookmarks
import GrantModel
import GrantStore
import GrantSystem

// Directories that are named by their filesystem and their path below its root, wherever that is mounted.
extension GrantAdministrator {
    /// Bookmarks a directory of a shared filesystem that the fleet wants to grant here, if this host's policy permits it. Writes
    /// nothing. `.notFound` if the filesystem is not mounted, `.invalidDirectory` if the directory is not there, is another one than
    /// was granted, or if several are meant.
    public func bookmark(of place: SharedDirectory, view: ViewName, access: Access) -> Result<Bookmark, GrantError> {
        do throws(GrantError) {
            let proposal = try Self.find(place, store: store.directory, probe: probe)
            try check(proposal)
            try requireAllowed([(proposal.bookmark.path, view, access)])
            return .success(proposal.bookmark)
        } catch {
            return .failure(error)
        }
    }

    /// Returns what the directory is, for other hosts to compare, or nil if its filesystem is not
    /// mounted on this machine. It throws `.invalidDirectory` as `bookmark` does.
    public static func identity(of place: SharedDirectory, store: String, probe: DirectoryProbe) throws(GrantError) -> FileIdentity? {
        do throws(GrantError) {
            return try find(place, store: store, probe: probe).bookmark.identity
        } catch {
            if error.code == .notFound { return nil }
            throw error
        }
    }

    private static func find(_ place: SharedDirectory, store: String, probe: DirectoryProbe) throws(GrantError) -> Proposal {
        let refusal = { (code: GrantError.Code, cause: String, advice: String?) in
            GrantError(code, "\(place) cannot be granted", cause: cause, advice: advice)
        }
        let candidates = place.candidates(in: try mountTable())
        if candidates.isEmpty { throw refusal(.notFound, "\(place.filesystem) is not mounted here", nil) }
        // The root of a filesystem has no name of its own.
        let anyName = try? GrantName(entry: Array("shared".utf8))
        var (found, failure): ([Proposal], GrantError?) = ([], nil)
        for candidate in candidates {
            let proposal: Proposal
            do throws(GrantError) {
                proposal = try propose(directory: candidate.path, name: anyName, store: store, probe: probe)
            } catch {
                failure = error
                continue
            }
            guard proposal.bookmark.path == candidate.path else {
                failure = refusal(.invalidDirectory, "a link leads from \(shown(candidate.path)) to somewhere else", nil)
                continue
            }
            // The filesystem may have been unmounted meanwhile, and the directory below it
            // bookmarked.
            guard place.filesystem.isThat(of: proposal.bookmark, candidate.entry),
                place.candidates(in: try mountTable()).contains(where: { $0.path == candidate.path && $0.entry.id == candidate.entry.id })
            else { continue }
            found.append(proposal)
        }
        if let identity = place.identity, !found.isEmpty {
            let others = found.map { shown($0.bookmark.path) }
            found.removeAll { !$0.bookmark.identity.agrees(with: identity) }
            if found.isEmpty {
                throw refusal(
                    .invalidDirectory, "another directory is there now (\(others.joined(separator: ", "))): the granted one was replaced",
                    "grant it again, if that one is meant")
            }
        }
        guard let first = found.first else { throw failure ?? refusal(.notFound, "\(place.filesystem) is not mounted here", nil) }
        if let other = found.first(where: {
            $0.bookmark.filesystem != first.bookmark.filesystem || !$0.bookmark.identity.agrees(with: first.bookmark.identity)
        }) {
            throw refusal(
                .invalidDirectory, "it is in several places: \(shown(first.bookmark.path)), \(shown(other.bookmark.path))",
                "filesystems that are mounted on one host need names of their own")
        }
        return first
    }

    private static func mountTable() throws(GrantError) -> MountTable {
        do throws(Errno) {
            return try MountTable.current()
        } catch {
            throw GrantError(.system, "the mounts of this machine cannot be read", cause: error.description)
        }
    }
}

private func shown(_ path: [UInt8]) -> String { String(decoding: path, as: UTF8.self) }

extension SharedDirectory {
    /// How many mounts of one filesystem are inspected.
    private static let candidateLimit = 32

    /// The paths at which the directory may be found, and on which mount each lies, that with the shortest mountpoint first.
    func candidates(in table: MountTable) -> [(path: [UInt8], entry: MountEntry)] {
        let below = Array(path.utf8)
        let slash = UInt8(ascii: "/")
        let found = table.entries.compactMap { entry -> (path: [UInt8], entry: MountEntry)? in
            guard filesystem.mayBe(entry), MountTable.path(below, isAtOrBelow: entry.root) else { return nil }
            let rest = entry.root == [slash] ? below : Array(below.dropFirst(entry.root.count))
            var place = entry.mountpoint.last == slash ? Array(entry.mountpoint.dropLast()) : entry.mountpoint
            place += rest.first == slash || rest.isEmpty ? rest : [slash] + rest
            while place.count > 1, place.last == slash { place.removeLast() }
            if place.isEmpty { place = [slash] }
            // Not what another mount covers.
            return table.entry(holding: place)?.id == entry.id ? (place, entry) : nil
        }
        return Array(found.sorted { ($0.path.count, shown($0.path)) < ($1.path.count, shown($1.path)) }.prefix(Self.candidateLimit))
    }
}

extension FilesystemName {
    /// Whether this can be a mount of the filesystem. Asks nothing of it.
    fileprivate func mayBe(_ entry: MountEntry) -> Bool {
        switch self {
        case .uuid:
            // The bookmark tells which filesystem it is. Servers and daemons, which may hang, are
            // not asked.
            return !FilesystemTraits(type: entry.type).isRemote && entry.source.first == UInt8(ascii: "/")
        case .source(let source):
            // A user that may mount with FUSE chooses the source: only root's mounts say whose they
            // are.
            let isFUSE = entry.type == "fuse" || entry.type == "fuseblk" || entry.type.hasPrefix("fuse.")
            return entry.source == Array(source.utf8)
                && (!isFUSE || entry.superOptions.split(separator: ",").contains("user_id=0"))
        }
    }

    /// Whether a directory that was found on this mount is of the filesystem.
    fileprivate func isThat(of bookmark: Bookmark, _ entry: MountEntry) -> Bool {
        switch self {
        case .uuid(let bytes): bookmark.filesystem.uuid == bytes
        case .source: bookmark.filesystem.type == entry.type && (bookmark.filesystem.source.map { $0 == entry.source } ?? true)
        }
    }
}
