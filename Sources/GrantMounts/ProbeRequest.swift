import GrantBookmarks
import GrantModel
import GrantSystem

/// A request about files on filesystems that may hang.
package enum ProbeRequest: Sendable {
    /// Resolves a bookmark. `heldAt` is the path where a running mount holds it.
    case find(Bookmark, heldAt: [UInt8]?)
    /// Bookmarks the directory at a path as it was given.
    case bookmark(directory: [UInt8])
    /// Bookmarks the file at a path as it was given.
    case document([UInt8], DocumentBookmark.Form)
    /// Resolves a path, as far as it exists.
    case canonical([UInt8])
    /// Sets a bookmarked directory's tag, or removes it.
    case tag(Bookmark, DirectoryTag?)
    /// Lists the subdirectories and links of a directory.
    case listing(directory: [UInt8])
    /// Finds which of the links in a directory (canonical) lead to directories.
    case links(directory: [UInt8], names: [[UInt8]])

    /// The path that is looked up first.
    package var path: [UInt8] {
        switch self {
        case .find(let bookmark, let held): held ?? bookmark.path
        case .bookmark(let path), .document(let path, _), .canonical(let path): CanonicalPath.absolute(path)
        case .tag(let bookmark, _): bookmark.path
        case .listing(let path): CanonicalPath.absolute(path)
        case .links(let path, _): path
        }
    }
}

package enum ProbeAnswer: Sendable {
    case found(FoundDirectory)
    case bookmarked(NamedDirectory)
    case canonical([UInt8])
    /// Done. The value is the previous tag.
    case tagged(before: DirectoryTag?)
    case listed(DirectoryListing)
    /// The names of the links that lead to directories.
    case links([[UInt8]])
    case failed(GrantError)
    case errno(Errno)
    /// The filesystem does not answer.
    case unresponsive
}

/// The result of resolving a bookmark.
package struct FoundDirectory: Sendable {
    package var finding: BookmarkFinding
    package var path: [UInt8]?
    package var isInTrash: Bool
    package var copy: [UInt8]?
}

/// The bookmark of a directory that a user named.
package struct NamedDirectory: Sendable {
    package var bookmark: Bookmark
    /// The device of the mount through which it was reached.
    package var device: DeviceNumber
    package var tag: DirectoryTag?
}

extension ProbeRequest {
    /// Carries the request out, which may block as long as the filesystem likes. `progress` is called now and then while much is read.
    func answer(_ resolver: BookmarkResolver, progress: () -> Void = {}) -> ProbeAnswer {
        switch self {
        case .find(let bookmark, let held):
            let resolved = resolver.resolve(bookmark, heldAt: held, copies: true)
            return .found(
                FoundDirectory(finding: resolved.finding, path: resolved.path, isInTrash: resolved.isInTrash, copy: resolved.copy))
        case .bookmark(let path):
            do throws(GrantError) {
                let made = try resolver.bookmark(directory: path)
                return .bookmarked(
                    NamedDirectory(
                        bookmark: made.bookmark, device: DeviceNumber(major: made.mount.major, minor: made.mount.minor),
                        tag: resolver.tag(at: made.bookmark.path)))
            } catch {
                return .failed(error)
            }
        case .document(let path, let form):
            do throws(GrantError) {
                let made = try resolver.bookmark(document: path, form: form)
                return .bookmarked(
                    NamedDirectory(
                        bookmark: made.bookmark, device: DeviceNumber(major: made.mount.major, minor: made.mount.minor), tag: nil))
            } catch {
                return .failed(error)
            }
        case .canonical(let path):
            return .canonical(CanonicalPath.resolveWhatExists(path))
        case .tag(let bookmark, let tag):
            do throws(Errno) {
                return .tagged(before: try resolver.setTag(tag, of: bookmark))
            } catch {
                return .errno(error)
            }
        case .listing(let path):
            do throws(Errno) {
                return .listed(try DirectoryListing(of: path, progress: progress))
            } catch {
                return .errno(error)
            }
        case .links(let path, let names):
            return .links(names.filter { DirectoryListing.leadsToDirectory($0, in: path) })
        }
    }
}
