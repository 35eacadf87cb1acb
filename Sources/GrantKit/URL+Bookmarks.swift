import Foundation
import GrantAdministration
import GrantModel

extension URL {
    /// Makes data that finds the file or directory at this URL again, after a rename, a move or a reboot.
    ///
    /// **Here.** The data has the item's identity: its filesystem, inode number with birth time or generation, and file handle. For a
    /// file it has those of its directory, and its name, because saving a file usually replaces it. Links in the URL are resolved
    /// first.
    ///
    /// With `withSecurityScope`, the data has the grant that leads to the item, sealed by the
    /// store. The same holds without it while access to the URL or a directory above it is started,
    /// unless `withoutImplicitSecurityScope` is given. Such data is only valid through that grant:
    /// it cannot be resolved while the grant is revoked, and can again once it is restored. Other
    /// data of an item in a mount has the names of the view and the grant, and the path below: it
    /// finds the item wherever the view is mounted, but not one that was renamed.
    ///
    /// The data keeps the item's present resource values for `keys`, if they are texts, numbers, truth values or dates. They are read
    /// with `resourceValues(forKeys:fromBookmarkData:)`.
    ///
    /// **There.** On iOS the data always has the right of the app that made it, on macOS only with `withSecurityScope`.
    ///
    /// **Differences.** `url`, the document to which a bookmark is bound there, is not needed here. Together with `withSecurityScope` it
    /// fails with `featureUnsupported`.
    ///
    /// - Throws: `CocoaError`: `fileReadNoSuchFile`, `fileReadNoPermission` (also if a scope is required and no active grant leads to
    ///   the item), `fileReadUnsupportedScheme`, `featureUnsupported`, `fileReadUnknown`. Its `underlying` is a `GrantError` with
    ///   details.
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
            return Data(try BookmarkMaker.data(of: self, scope: scope, keeping: keys ?? [], in: environment))
        } catch {
            throw CocoaError(error, url: self, isMaking: true)
        }
    }

    /// Resolves a bookmark.
    ///
    /// **Here.** Data with a grant leads to `MOUNTPOINT/NAME/…` if a running mount of the grant's
    /// view shows it to this process, which is where revocations take effect. Otherwise it leads to
    /// the directory itself (see `GrantEnvironment.usesMountsOnly`). Other data leads to the item's
    /// path. `isStale` is set if the item was moved since the data was made: the URL is right, and
    /// new data made from it is no longer stale.
    ///
    /// **There.** Resolving does the same, without mounts. On iOS resolving starts access. Here
    /// `startAccessingSecurityScopedResource()` does.
    ///
    /// - Throws: `CocoaError`: `fileReadCorruptFile` (invalid, damaged, newer, or of another
    ///   store), `fileReadNoPermission` (the grant is revoked, expired or removed, or the item has
    ///   left it). It throws `fileNoSuchFile` (missing, replaced by another, its volume not
    ///   mounted) or `fileReadUnknown` (the store cannot be read, or there are several candidates).
    ///   Its `underlying` is a `GrantError` with details.
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
