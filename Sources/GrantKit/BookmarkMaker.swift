import GrantBookmarks
import Foundation
import Glibc
import GrantAdministration
import GrantModel
import GrantStore
import GrantSystem

/// Makes bookmarks.
enum BookmarkMaker {
    /// What a bookmark records besides its item.
    enum Scope {
        case none
        /// The grant that leads to the item. Without one, no bookmark is made.
        case required
        /// The grant that leads to the item. If it cannot be recorded for an item in a mount, the
        /// bookmark records the names in the view.
        case whereKnown
    }

    /// Makes a bookmark, with the item's resource values for `keys`. Throws `.notFound`,
    /// `.permission` (the item's own, or no active grant), `.usage`, and the store's errors.
    static func data(
        of url: URL, scope: Scope, keeping keys: Set<URLResourceKey> = [], in environment: GrantEnvironment
    ) throws(GrantError) -> [UInt8] {
        let values = BookmarkValue.values(of: url, keys)
        let path = try FilePath.canonical(url)
        let isDirectory = try look(path).isDirectory
        let place = ViewPlace(path, in: try GrantedPlace.table())
        switch scope {
        case .required:
            return try granted(path, isDirectory: isDirectory, values, environment)
        case .whereKnown:
            do throws(GrantError) {
                return try granted(path, isDirectory: isDirectory, values, environment)
            } catch {
                if place == nil { throw error }
            }
        case .none: break
        }
        let route: BookmarkData.Route
        if let place, let directory = place.directory {
            route = .view(name: place.view, grant: place.name, directory: try number(directory), below: place.below)
        } else {
            route = .item(try item(path, isDirectory: isDirectory))
        }
        return BookmarkData(path: path, isDirectory: isDirectory, route: route, values: values).encoded { _ in 0 }
    }

    private static func granted(
        _ path: [UInt8], isDirectory: Bool, _ values: [String: BookmarkValue], _ environment: GrantEnvironment
    ) throws(GrantError) -> [UInt8] {
        let administrator = try environment.administrator()
        let place = try GrantedPlace(path, administrator: administrator)
        let item = try item(place.source, isDirectory: isDirectory)
        let store = administrator.store
        let route = BookmarkData.Route.grant(place.grant.id, store: store.fingerprint, below: place.below, item)
        // In a mount the path stays valid when the granted directory moves on the host. A bind mount elsewhere counts as part of the
        // view.
        let isInMount = ViewPlace(path, in: try GrantedPlace.table()) != nil
        let named = !isInMount ? place.source : FilePath.path(path, endsWith: place.inView) ? path : place.inView
        let data = BookmarkData(path: named, isDirectory: isDirectory, route: route, values: values)
        return data.encoded { store.seal($0, for: purpose) }
    }

    /// The purpose of the seals of bookmarks.
    static let purpose = "URL bookmark"

    private static func item(_ path: [UInt8], isDirectory: Bool) throws(GrantError) -> BookmarkData.Item {
        if isDirectory { return BookmarkData.Item(directory: try bookmark(path)) }
        var names = path.split(separator: UInt8(ascii: "/"))
        guard let name = names.popLast() else { throw FilePath.failure(Errno(EISDIR), path) }
        let directory = [UInt8(ascii: "/")] + names.joined(separator: [UInt8(ascii: "/")])
        let leaf = BookmarkData.Leaf(name: Array(name), identity: try look(path).identity)
        return BookmarkData.Item(directory: try bookmark(directory), leaf: leaf)
    }

    private static func bookmark(_ directory: [UInt8]) throws(GrantError) -> Bookmark {
        do throws(Errno) {
            // The resolver's reason for a refusal is text for people. This open gives programs an
            // error code.
            _ = try FileDescriptor.open(directory, O_RDONLY | O_DIRECTORY | O_NONBLOCK)
        } catch {
            throw FilePath.failure(error, directory)
        }
        return try BookmarkResolver().bookmark(directory: directory).bookmark
    }

    /// The inode number of a directory in a mount, without the part that each mount assigns.
    static func number(_ directory: [UInt8]) throws(GrantError) -> UInt64 { try look(directory).identity.inode & ((1 << 48) - 1) }

    /// Looks up the item at a canonical path.
    static func look(_ path: [UInt8]) throws(GrantError) -> (isDirectory: Bool, identity: FileIdentity) {
        do throws(Errno) {
            let status = try FileDescriptor.open(path, OpenFlags.path | O_NOFOLLOW).status()
            return (status.st.st_mode & S_IFMT == S_IFDIR, FileIdentity(status))
        } catch {
            throw FilePath.failure(error, path)
        }
    }
}

extension FileIdentity {
    /// Inode number and birth time, which distinguish a file from an earlier one with the same number.
    init(_ status: FileStatus) {
        var birthTime: Instant?
        if status.has_birth {
            let (nanoseconds, overflow) = status.birth_seconds.multipliedReportingOverflow(by: 1_000_000_000)
            if !overflow { birthTime = Instant(nanoseconds: nanoseconds &+ Int64(status.birth_nanoseconds)) }
        }
        self.init(inode: UInt64(status.st.st_ino), birthTime: birthTime)
    }
}
