import GrantBookmarks
import Foundation
import Glibc
import GrantAdministration
import GrantModel
import GrantStore
import GrantSystem

/// Resolves bookmarks.
enum BookmarkFinder {
    struct Found {
        /// The path for the program to use: in a mount, or on the host.
        let path: [UInt8]
        let isDirectory: Bool
        /// Whether the item is no longer where the data says. New data made from `path` is current again.
        let isStale: Bool
        /// The grant that leads to the item.
        let grant: Grant?
        let isInMount: Bool
    }

    /// Resolves a bookmark.
    ///
    /// - Throws: `.invalidBookmark`, `.ambiguous` and the store's errors. It throws `.permission`
    ///   for a grant that is revoked, expired or removed and for an item that has left it. It
    ///   throws `.notFound` for a missing or replaced item.
    static func find(_ bytes: [UInt8], in environment: GrantEnvironment) throws(GrantError) -> Found {
        let (data, sealed, seal) = try BookmarkData.decoded(bytes)
        switch data.route {
        case .item(let item):
            let path = try find(item)
            try require(data.isDirectory, path)
            let isInMount = ViewPlace(path, in: try GrantedPlace.table()) != nil
            return Found(path: path, isDirectory: data.isDirectory, isStale: path != data.path, grant: nil, isInMount: isInMount)
        case .view(let name, let grant, let directory, let below):
            return try find(view: name, grant, directory, below, data, environment.timeouts)
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
            source = try find(leaf, in: isDeeper ? try? find(item.directory) : directory, of: item, below: directory)
        } else if !below.isEmpty {
            source = try find(item.directory)
        }
        guard let inside = FilePath.below(directory, source) else {
            throw GrantError(
                .permission, "“\(FilePath.shown(source))” cannot be used", cause: "it does not lie in the grant “\(grant.name)” any more")
        }
        try require(data.isDirectory, source)
        let (path, isInMount) = try route(to: inside, in: directory, of: grant, administrator, environment)
        // An item named in a mount has not moved while the view has it there, even if the granted directory has.
        let inView = FilePath.join([UInt8(ascii: "/")] + grant.name.bytes, inside)
        let isStale = data.path == item.path ? source != data.path : !FilePath.path(data.path, endsWith: inView)
        return Found(path: path, isDirectory: data.isDirectory, isStale: isStale, grant: grant, isInMount: isInMount)
    }

    /// Finds the directory of a grant. The errors are those of a bookmark with that grant.
    static func find(
        _ grant: Grant, _ administrator: GrantAdministrator, _ environment: GrantEnvironment
    ) throws(GrantError) -> Found {
        let described = administrator.describe([grant])[0]
        try described.requireUsable()
        let (path, isInMount) = try route(to: [], in: described.path, of: grant, administrator, environment)
        return Found(path: path, isDirectory: true, isStale: false, grant: grant, isInMount: isInMount)
    }

    /// Finds the path through the oldest mount that shows the grant and that this process can use.
    /// Without such a mount it returns the path on the host, unless `usesMountsOnly` is set.
    private static func route(
        to inside: [UInt8], in directory: [UInt8], of grant: Grant, _ administrator: GrantAdministrator, _ environment: GrantEnvironment
    ) throws(GrantError) -> (path: [UInt8], isInMount: Bool) {
        for mountpoint in try administrator.mountpoints(showing: grant, within: environment.timeouts.daemon) {
            let path = FilePath.join(CanonicalPath.join(mountpoint, grant.name.bytes), inside)
            // A mount that this process may not enter, such as another user's, is skipped.
            if (try? BookmarkMaker.look(path)) != nil { return (path, true) }
        }
        if !environment.usesMountsOnly { return (FilePath.join(directory, inside), false) }
        throw GrantError(
            .notFound, "the grant “\(grant.name)” cannot be used", cause: "no mount of the view “\(grant.view)” shows it",
            advice: "grantfs mount \(grant.view) MOUNTPOINT")
    }

    // MARK: Through a mounted view

    /// Searches the former mount, and the others of a view of that name that have the same directory under the grant's name.
    private static func find(
        view: [UInt8], _ grant: [UInt8], _ number: UInt64, _ below: [UInt8], _ data: BookmarkData, _ timeouts: Timeouts
    ) throws(GrantError) -> Found {
        let mounts = try GrantedPlace.table().entries.filter { $0.type == GrantAdministrator.filesystemType && $0.source == view }
        let directories = mounts.compactMap { ViewPlace.directory(of: grant, in: $0) }
        let isOld = { (directory: [UInt8]) in FilePath.join(directory, below) == data.path }
        var refusal: GrantError?
        for directory in directories.filter(isOld) + directories.filter({ !isOld($0) }) {
            let path = FilePath.join(directory, below)
            // Mounts of views of that name may belong to other users, and their daemons may be dead, stopped or hang.
            let seen = timeouts.ask { () -> Result<Bool, GrantError> in
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
            // Other mounts may refuse for their own reasons. Only the former one's refusal counts.
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
        guard let leaf = item.leaf else { return try find(item.directory) }
        return try find(leaf, in: try? find(item.directory), of: item, below: nil)
    }

    /// Returns the file where its name leads, or else where it was moved: in its directory, below the granted directory or, without a
    /// grant, near the nearest directory above that still exists. It is the same file there by any name.
    private static func find(
        _ leaf: BookmarkData.Leaf, in directory: [UInt8]?, of item: BookmarkData.Item, below top: [UInt8]?
    ) throws(GrantError) -> [UInt8] {
        do throws(GrantError) {
            if let directory { return try find(leaf, in: directory) }
        } catch {
            if error.code != .notFound { throw error }
        }
        let resolver = BookmarkResolver()
        if let moved = resolver.path(ofFile: leaf.identity, onceAt: item.path, in: item.directory, below: top) { return moved }
        // The reason why it is not in its directory says more.
        if let directory { return try find(leaf, in: directory) }
        return try find(leaf, in: try find(item.directory))
    }

    private static func find(_ bookmark: Bookmark) throws(GrantError) -> [UInt8] {
        let resolved = BookmarkResolver().resolve(bookmark)
        if resolved.finding.isUsable, let path = resolved.path { return path }
        let cause = resolved.isInTrash ? "it lies in a Trash" : "it is \(resolved.finding.rawValue)"
        throw GrantError(
            resolved.finding == .ambiguous ? .ambiguous : .notFound, "“\(FilePath.shown(bookmark.path))” cannot be found", cause: cause)
    }

    /// Returns the file of that name, or the same file under another name in that directory.
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

    /// Requires that a directory is still a directory, and a file still none. Permissions are not checked.
    private static func require(_ isDirectory: Bool, _ path: [UInt8]) throws(GrantError) {
        if try BookmarkMaker.look(path).isDirectory != isDirectory {
            throw GrantError(
                .notFound, "“\(FilePath.shown(path))” cannot be used", cause: "it is \(isDirectory ? "no" : "a") directory now")
        }
    }
}
