import GrantBookmarks
import Foundation
import Glibc
import GrantAdministration
import GrantModel
import GrantStore
import GrantSystem

/// Finds the items of bookmarks.
enum BookmarkFinder {
    struct Found {
        /// Where a program is to go: in a mount, or on the host.
        let path: [UInt8]
        let isDirectory: Bool
        /// The item is not where the data says. Data that is made anew of `path` is right again.
        let isStale: Bool
        /// The grant that leads there.
        let grant: Grant?
        let isInMount: Bool
    }

    /// `.invalidBookmark`; `.permission` for a grant that is revoked, expired or removed, and for an item that has left it; `.notFound` for what is
    /// missing or replaced; `.ambiguous`; what the store throws.
    static func find(_ bytes: [UInt8], in environment: GrantEnvironment) throws(GrantError) -> Found {
        let (data, sealed, seal) = try BookmarkData.decoded(bytes)
        switch data.way {
        case .item(let item):
            let path = try find(item)
            try require(data.isDirectory, path)
            let isInMount = ViewPlace(path, in: try GrantedPlace.table()) != nil
            return Found(path: path, isDirectory: data.isDirectory, isStale: path != data.path, grant: nil, isInMount: isInMount)
        case .view(let name, let grant, let directory, let below):
            return try find(view: name, grant, directory, below, data, environment.patience)
        case .grant(let id, let fingerprint, let below, let item):
            let administrator = try environment.administrator()
            guard administrator.store.fingerprint == fingerprint else { throw BookmarkData.invalid("it is of another store") }
            guard administrator.store.seal(sealed, for: BookmarkMaker.purpose) == seal else {
                throw BookmarkData.invalid("its seal does not fit: something else than this store's owner has made it")
            }
            return try find(id, below, item, data, administrator, environment)
        }
    }

    // MARK: Through a grant

    private static func find(
        _ id: GrantID, _ below: [UInt8], _ item: BookmarkData.Item, _ data: BookmarkData, _ administrator: GrantAdministrator,
        _ environment: GrantEnvironment
    ) throws(GrantError) -> Found {
        guard let grant = try administrator.store.grant(id) else {
            throw GrantError(.permission, "the bookmark cannot be used", cause: "its grant was removed")
        }
        let described = administrator.describe([grant])[0]
        try described.requireUsable()
        let directory = described.path
        var source = directory
        let isDeeper = below.contains(UInt8(ascii: "/"))
        if let leaf = item.leaf {
            source = try find(leaf, in: isDeeper ? try find(item.directory) : directory)
        } else if !below.isEmpty {
            source = try find(item.directory)
        }
        guard let inside = FilePath.below(directory, source) else {
            throw GrantError(
                .permission, "“\(FilePath.shown(source))” cannot be used", cause: "it does not lie in the grant “\(grant.name)” any more")
        }
        try require(data.isDirectory, source)
        let (path, isInMount) = try way(to: inside, in: directory, of: grant, administrator, environment)
        // What was named in a mount is where it was as long as the view has it there, wherever the granted directory lies.
        let inView = FilePath.join([UInt8(ascii: "/")] + grant.name.bytes, inside)
        let isStale = data.path == item.path ? source != data.path : !FilePath.path(data.path, endsWith: inView)
        return Found(path: path, isDirectory: data.isDirectory, isStale: isStale, grant: grant, isInMount: isInMount)
    }

    /// The directory of a grant. Errors as for a bookmark that leads through it.
    static func find(
        _ grant: Grant, _ administrator: GrantAdministrator, _ environment: GrantEnvironment
    ) throws(GrantError) -> Found {
        let described = administrator.describe([grant])[0]
        try described.requireUsable()
        let (path, isInMount) = try way(to: [], in: described.path, of: grant, administrator, environment)
        return Found(path: path, isDirectory: true, isStale: false, grant: grant, isInMount: isInMount)
    }

    /// Through the oldest mount that shows the grant and that this process can use; else on the host.
    private static func way(
        to inside: [UInt8], in directory: [UInt8], of grant: Grant, _ administrator: GrantAdministrator, _ environment: GrantEnvironment
    ) throws(GrantError) -> (path: [UInt8], isInMount: Bool) {
        for mountpoint in try administrator.mountpoints(showing: grant, within: environment.patience.daemon) {
            let path = FilePath.join(CanonicalPath.join(mountpoint, grant.name.bytes), inside)
            // A mount that this process may not enter (another user's) leads nowhere.
            if (try? BookmarkMaker.look(path)) != nil { return (path, true) }
        }
        if !environment.usesMountsOnly { return (FilePath.join(directory, inside), false) }
        throw GrantError(
            .notFound, "the grant “\(grant.name)” cannot be used", cause: "no mount of the view “\(grant.view)” shows it",
            advice: "grantfs mount \(grant.view) MOUNTPOINT")
    }

    // MARK: Through a mounted view

    /// In the mount where it was, or in another one of a view of that name that has the same directory under the grant's name.
    private static func find(
        view: [UInt8], _ grant: [UInt8], _ number: UInt64, _ below: [UInt8], _ data: BookmarkData, _ patience: Patience
    ) throws(GrantError) -> Found {
        let mounts = try GrantedPlace.table().entries.filter { $0.type == GrantAdministrator.filesystemType && $0.source == view }
        let directories = mounts.compactMap { ViewPlace.directory(of: grant, in: $0) }
        let isOld = { (directory: [UInt8]) in FilePath.join(directory, below) == data.path }
        var refusal: GrantError?
        for directory in directories.filter(isOld) + directories.filter({ !isOld($0) }) {
            let path = FilePath.join(directory, below)
            // Mounts of views of that name may be other users', and their daemons dead, stopped or hanging.
            let seen = patience.ask { () -> Result<Bool, GrantError> in
                do throws(GrantError) {
                    guard try BookmarkMaker.number(directory) == number else { return .success(false) }
                    try require(data.isDirectory, path)
                    return .success(true)
                } catch {
                    return .failure(error)
                }
            }
            switch seen {
            case .success(true): return Found(path: path, isDirectory: data.isDirectory, isStale: false, grant: nil, isInMount: true)
            case .success(false): continue
            // What another mount refuses may be anybody's; the one that had it means this.
            case .failure(let error): if isOld(directory) { refusal = error }
            case nil:
                if isOld(directory) {
                    refusal = GrantError(.system, "“\(FilePath.shown(path))” cannot be used", cause: "its mount does not answer")
                }
            }
        }
        throw refusal
            ?? GrantError(
                .notFound, "“\(FilePath.shown(data.path))” cannot be used",
                cause: "no mounted view “\(FilePath.shown(view))” has it", advice: "grantfs mount VIEW MOUNTPOINT")
    }

    // MARK: By identity

    private static func find(_ item: BookmarkData.Item) throws(GrantError) -> [UInt8] {
        let directory = try find(item.directory)
        guard let leaf = item.leaf else { return directory }
        return try find(leaf, in: directory)
    }

    private static func find(_ bookmark: Bookmark) throws(GrantError) -> [UInt8] {
        let resolved = BookmarkResolver().resolve(bookmark)
        if resolved.finding.isUsable, let path = resolved.path { return path }
        let cause = resolved.isInTrash ? "it lies in a Trash" : "it is \(resolved.finding.rawValue)"
        throw GrantError(
            resolved.finding == .ambiguous ? .ambiguous : .notFound, "“\(FilePath.shown(bookmark.path))” cannot be found", cause: cause)
    }

    /// The file of that name; else the one that it was, under another name in the same directory.
    private static func find(_ leaf: BookmarkData.Leaf, in directory: [UInt8]) throws(GrantError) -> [UInt8] {
        let path = CanonicalPath.join(directory, leaf.name)
        do throws(GrantError) {
            _ = try BookmarkMaker.look(path)
            return path
        } catch {
            if error.code != .notFound { throw error }
        }
        guard let stream = withCString(directory, { opendir($0) }) else { throw FilePath.failure(Errno(errno), directory) }
        defer { closedir(stream) }
        while let entry = readdir(stream) {
            guard UInt64(entry.pointee.d_ino) == leaf.identity.inode else { continue }
            let name = withUnsafeBytes(of: &entry.pointee.d_name) { Array($0.prefix { $0 != 0 }) }
            let renamed = CanonicalPath.join(directory, name)
            if let seen = try? BookmarkMaker.look(renamed), seen.identity == leaf.identity { return renamed }
        }
        throw FilePath.failure(Errno(ENOENT), path)
    }

    /// What was a directory is one still, and what was none is none. Nothing is said of who may read it.
    private static func require(_ isDirectory: Bool, _ path: [UInt8]) throws(GrantError) {
        if try BookmarkMaker.look(path).isDirectory != isDirectory {
            throw GrantError(
                .notFound, "“\(FilePath.shown(path))” cannot be used", cause: "it is \(isDirectory ? "no" : "a") directory now")
        }
    }
}
