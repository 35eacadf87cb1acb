import Foundation
import GrantAdministration
import GrantModel

extension URL {
    /// Starts access to a granted item, and returns whether the program may use it.
    ///
    /// **Here.** True if the URL leads to something that exists and has one of these properties:
    /// - It is in a mount of a view, which admits only the present grants.
    /// - It is in a directory with an active grant in the store, found at the URL's path.
    ///
    /// Returns false if its grant is revoked, expired or removed, or if its directory is missing or
    /// replaced. Returns false also if the URL belongs to no grant or is not a file's, or if the
    /// store cannot be read. Balance each true by one `stopAccessingSecurityScopedResource()`.
    /// While access is started, bookmarks of the URL, and of items below it, record the grant.
    ///
    /// The start itself opens and holds nothing: a revocation affects every program that uses a
    /// mount at once, however often access was started. It does not affect a program that uses the
    /// granted directory itself, for lack of a mount.
    ///
    /// **There.** Only the very URL of a picker or a bookmark carries a scope, the start extends the app's sandbox, and a start without
    /// a stop leaks a kernel resource. Here access can be started for every URL in a grant.
    public func startAccessingSecurityScopedResource() -> Bool {
        guard let (words, path) = try? FilePath.wordsAndCanonical(self), isGranted(path) else { return false }
        ScopeTable.process.started(words, at: path)
        return true
    }

    /// Ends one start that returned true. Without one it does nothing, here and there.
    public func stopAccessingSecurityScopedResource() {
        guard let words = try? FilePath.words(self) else { return }
        ScopeTable.process.stopped(words)
    }

    private func isGranted(_ path: [UInt8]) -> Bool {
        guard let (table, mounts) = try? CurrentMounts.current() else { return false }
        if ViewPlace(path, in: table) != nil { return (try? BookmarkMaker.look(path)) != nil }
        return FoundDirectories.process.isGranted(path, in: .current, mounts: mounts)
    }
}
