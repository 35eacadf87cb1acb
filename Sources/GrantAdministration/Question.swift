import GrantBookmarks
import GrantModel
import GrantSystem

/// What has to be looked at on filesystems that may not answer.
package enum Question: Sendable {
    /// Where a bookmark's directory is; `heldAt` as a running mount says.
    case find(Bookmark, heldAt: [UInt8]?)
    /// The bookmark of the directory at a path as somebody gave it.
    case bookmark(directory: [UInt8])
    /// The bookmark of the file at a path as somebody gave it.
    case document([UInt8], DocumentBookmark.Form)
    /// The canonical path, as far as there is something.
    case canonical([UInt8])
    /// Gives a bookmarked directory a tag, or takes it away.
    case tag(Bookmark, DirectoryTag?)
    /// What a directory holds that is one or leads to one.
    case listing(directory: [UInt8])
    /// Which of the links in a directory (canonical) lead to directories.
    case links(directory: [UInt8], names: [[UInt8]])

    /// Where it begins to look.
    var path: [UInt8] {
        switch self {
        case .find(let bookmark, let held): held ?? bookmark.path
        case .bookmark(let path), .document(let path, _), .canonical(let path): CanonicalPath.absolute(path)
        case .tag(let bookmark, _): bookmark.path
        case .listing(let path): CanonicalPath.absolute(path)
        case .links(let path, _): path
        }
    }
}

package enum Answer: Sendable {
    case found(FoundDirectory)
    case bookmarked(NamedDirectory)
    case canonical([UInt8])
    /// It is done; the tag that was there before.
    case tagged(before: DirectoryTag?)
    case listed(DirectoryListing)
    /// The names of those that do.
    case links([[UInt8]])
    case failed(GrantError)
    case errno(Errno)
    /// The filesystem does not answer.
    case silent
}

/// What became of a bookmark's directory.
package struct FoundDirectory: Sendable {
    var finding: BookmarkFinding
    var path: [UInt8]?
    var isInTrash: Bool
    var copy: [UInt8]?
}

/// A directory that somebody named.
package struct NamedDirectory: Sendable {
    var bookmark: Bookmark
    /// Of the mount it was reached through.
    var device: DeviceNumber
    var tag: DirectoryTag?
}

extension Question {
    /// Looks; this may take as long as the filesystem likes. `progress` is called now and then while there is much to read.
    func answer(_ resolver: BookmarkResolver, progress: () -> Void = {}) -> Answer {
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
