import Foundation
import GrantAdministration
import GrantModel

extension URL {
    /// Data that finds the file or directory of this URL again, after a rename, a move, a reboot.
    ///
    /// **Here.** The data holds the item's identity: its filesystem, inode number with birth time or generation, file handle. Of a file it holds
    /// those of its directory, and its name, because saving a file usually makes it another one. Links in the URL are followed first.
    ///
    /// With `withSecurityScope`, and also without it while access to the URL, or to a directory above it, is started, the data
    /// holds which grant of the store the item is reached through, and the store seals that. Such data leads through the grant and
    /// through nothing else: once the grant is revoked it resolves no more, and once it is restored it does again. Inside a mount whose store the
    /// program cannot read, the data holds the name of the view, of the grant, and the path below: it finds the item wherever the view is mounted, not one that was
    /// renamed.
    ///
    /// **There.** On iOS the data always holds the right of the app that made it, on macOS only with `withSecurityScope`. `keys` are values to be kept in the data.
    ///
    /// **Differences.** No resource values are kept: `keys` changes nothing. `url`, the document that a bookmark is to be bound to, only serves as a place to look from there; here it is
    /// not needed, and together with `withSecurityScope` it is refused (`featureUnsupported`).
    ///
    /// - Throws: `CocoaError`: `fileReadNoSuchFile`, `fileReadNoPermission` (also when a scope is asked for and no active grant leads to the item),
    ///   `fileReadUnsupportedScheme`, `featureUnsupported`, `fileReadUnknown`. The `GrantError` that says more is its `underlying`.
    public func bookmarkData(
        options: BookmarkCreationOptions = [], includingResourceValuesForKeys keys: Set<URLResourceKey>? = nil, relativeTo url: URL? = nil
    ) throws -> Data {
        do throws(GrantError) {
            let environment = GrantEnvironment.current
            let isScoped = options.contains(.withSecurityScope)
            if isScoped && url != nil {
                throw GrantError(
                    .unsupported, "the bookmark cannot be made", cause: "a security scope that belongs to a document is not known here")
            }
            if isScoped && options.contains(.securityScopeAllowOnlyReadAccess) {
                try requireReadOnly(environment)
            }
            let isImplicit = !isScoped && !options.contains(.withoutImplicitSecurityScope) && ScopeTable.process.covers(self)
            let scope: BookmarkMaker.Scope = isScoped ? .required : isImplicit ? .whereKnown : .none
            return Data(try BookmarkMaker.data(of: self, scope: scope, in: environment))
        } catch {
            throw CocoaError(error, url: self, isMaking: true)
        }
    }

    /// The item of a bookmark, where it is now.
    ///
    /// **Here.** Data that was made with a grant leads to `MOUNTPOINT/NAME/…` when a running mount of the grant's view shows it to this process, which is where a revocation
    /// binds; else to the directory itself (see `GrantEnvironment.usesMountsOnly`). Data without one leads to where the item
    /// is. `isStale` is set when the item is not where it was when the data was made: the URL is right, and data made anew of it is no longer stale.
    ///
    /// **There.** The same, without mounts. On iOS resolving starts access by itself; here `startAccessingSecurityScopedResource()` does.
    ///
    /// - Throws: `CocoaError`: `fileReadCorruptFile` (no bookmark, damaged, newer, of another store), `fileReadNoPermission` (the grant is revoked, expired, removed; the item has left
    ///   it), `fileNoSuchFile` (missing, replaced by another, its volume not mounted), `fileReadUnknown` (the store cannot be read; several candidates). The `GrantError` that
    ///   says more is its `underlying`.
    public init(
        resolvingBookmarkData data: Data, options: BookmarkResolutionOptions = [], relativeTo url: URL? = nil,
        bookmarkDataIsStale isStale: inout Bool
    ) throws {
        do throws(GrantError) {
            let found = try BookmarkFinder.find(Array(data), in: .current)
            if options.contains(.withSecurityScope) && found.grant == nil {
                throw BookmarkData.invalid("it was made without a security scope")
            }
            isStale = found.isStale
            self = FilePath.url(found.path, isDirectory: found.isDirectory)
        } catch {
            throw CocoaError(error)
        }
    }
}

extension URL {
    private func requireReadOnly(_ environment: GrantEnvironment) throws(GrantError) {
        let place = try GrantedPlace(try FilePath.canonical(self), administrator: try environment.administrator())
        if place.grant.access == .readOnly { return }
        throw GrantError(
            .unsupported, "the bookmark cannot be made", cause: "the grant “\(place.grant.name)” lets write",
            advice: "grantfs set \(place.grant.id) --access read-only")
    }
}
