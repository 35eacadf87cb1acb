import Foundation
import GrantAdministration
import GrantModel

extension URL {
    /// Whether the program may use what lies at the URL because it was granted, and counts that it has begun to.
    ///
    /// **Here.** True when the URL leads to something that is there and
    /// - lies in a mount of a view, which lets in what is granted now and nothing else; or
    /// - lies in a directory with an active grant in the store that can be found where the URL says.
    ///
    /// False when its grant is revoked, expired or removed, when its directory is missing or another one stands in its place, when the URL belongs to no
    /// grant, when it is no file's, and when the store cannot be read. Each true is balanced by one `stopAccessingSecurityScopedResource()`. While access is started,
    /// bookmarks that are made of the URL, and of what lies below it, remember the grant.
    ///
    /// The start itself opens nothing and holds nothing: a revocation binds at once whoever comes through a mount, however often access was started. Whoever
    /// uses the granted directory itself, for want of a mount, is not held back by it.
    ///
    /// **There.** Only the very URL that a picker or a bookmark gave carries a scope, the start widens the app's sandbox, and a start that is never stopped leaks a resource of the
    /// kernel. Here every URL that leads into a grant can be started.
    public func startAccessingSecurityScopedResource() -> Bool {
        guard let words = try? FilePath.words(self), let path = try? FilePath.canonical(self), isGranted(path) else { return false }
        ScopeTable.process.started(words, at: path)
        return true
    }

    /// Ends what one `startAccessingSecurityScopedResource()` that returned true has begun. Without one, nothing happens, here and there.
    public func stopAccessingSecurityScopedResource() {
        guard let words = try? FilePath.words(self) else { return }
        ScopeTable.process.stopped(words)
    }

    private func isGranted(_ path: [UInt8]) -> Bool {
        guard let table = try? GrantedPlace.table() else { return false }
        if ViewPlace(path, in: table) != nil { return (try? BookmarkMaker.look(path)) != nil }
        guard let administrator = try? GrantEnvironment.current.administrator() else { return false }
        return (try? GrantedPlace(path, administrator: administrator)) != nil
    }
}
