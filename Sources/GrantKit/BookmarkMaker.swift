import GrantBookmarks
import Foundation
import Glibc
import GrantAdministration
import GrantModel
import GrantStore
import GrantSystem

/// Makes the data of bookmarks.
enum BookmarkMaker {
    /// What a bookmark is to remember besides where its item is.
    enum Scope {
        case none
        /// The grant through which the item is reached; without one it is an error.
        case required
        /// The same, but inside a mount whose store this process cannot read the mount is remembered.
        case whereKnown
    }

    /// `.notFound`, `.permission` (the item's own, or no active grant), `.usage`, and what the store throws.
    static func data(of url: URL, scope: Scope, in environment: GrantEnvironment) throws(GrantError) -> [UInt8] {
        let path = try FilePath.canonical(url)
        let isDirectory = try look(path).isDirectory
        let place = ViewPlace(path, in: try GrantedPlace.table())
        switch scope {
        case .required:
            return try granted(path, isDirectory: isDirectory, environment)
        case .whereKnown:
            do throws(GrantError) {
                return try granted(path, isDirectory: isDirectory, environment)
            } catch {
                if place == nil { throw error }
            }
        case .none: break
        }
        let way: BookmarkData.Way
        if let place, let directory = place.directory {
            way = .view(name: place.view, grant: place.name, directory: try number(directory), below: place.below)
        } else {
            way = .item(try item(path, isDirectory: isDirectory))
        }
        return BookmarkData(path: path, isDirectory: isDirectory, way: way).encoded { _ in 0 }
    }

    private static func granted(_ path: [UInt8], isDirectory: Bool, _ environment: GrantEnvironment) throws(GrantError) -> [UInt8] {
        let administrator = try environment.administrator()
        let place = try GrantedPlace(path, administrator: administrator)
        let item = try item(place.source, isDirectory: isDirectory)
        let store = administrator.store
        let way = BookmarkData.Way.grant(place.grant.id, store: store.fingerprint, below: place.below, item)
        // In a mount it stays where it is when the granted directory moves on the host; what was bound elsewhere counts as named in the view.
        let isInMount = ViewPlace(path, in: try GrantedPlace.table()) != nil
        let named = !isInMount ? place.source : FilePath.path(path, endsWith: place.inView) ? path : place.inView
        return BookmarkData(path: named, isDirectory: isDirectory, way: way).encoded { store.seal($0, for: purpose) }
    }

    /// What the seals of bookmarks are made for.
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
            // The resolver says why it refuses for people alone; here programs are told as well.
            _ = try FileDescriptor.open(directory, O_RDONLY | O_DIRECTORY | O_NONBLOCK)
        } catch {
            throw FilePath.failure(error, directory)
        }
        return try BookmarkResolver().bookmark(directory: directory).bookmark
    }

    /// The inode number of a directory in a mount, without what is another one in the next mount.
    static func number(_ directory: [UInt8]) throws(GrantError) -> UInt64 { try look(directory).identity.inode & ((1 << 48) - 1) }

    /// What stands at a canonical path.
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
    /// Inode number and birth time, by which a file is told from the one that had its number before.
    init(_ status: FileStatus) {
        var birthTime: Instant?
        if status.has_birth {
            let (nanoseconds, overflow) = status.birth_seconds.multipliedReportingOverflow(by: 1_000_000_000)
            if !overflow { birthTime = Instant(nanoseconds: nanoseconds &+ Int64(status.birth_nanoseconds)) }
        }
        self.init(inode: UInt64(status.st.st_ino), birthTime: birthTime)
    }
}
