import Foundation
import Glibc
import GrantAdministration
import GrantModel
import GrantStore

/// The store for functions that, like Apple's, take none as a parameter: bookmarks, security scopes, file coordination.
///
/// By default it is the commands' store: `$GRANTFS_STORE`, else `/var/lib/grantfs` for root and `$XDG_DATA_HOME/grantfs` for others.
/// Another one can be bound for a part of the program:
///
/// ```swift
/// GrantEnvironment.$current.withValue(GrantEnvironment(store: "/srv/store")) {
///     _ = url.startAccessingSecurityScopedResource()
/// }
/// ```
///
/// Tasks inherit it. Your own threads and operation queues do not. Apple has no counterpart,
/// because the system has only one store.
public struct GrantEnvironment: Sendable {
    /// The absolute path of the store's directory, or nil for the commands' store.
    public var store: String?
    /// How directories are looked up. `.inProcess` blocks as long as a filesystem takes to answer.
    public var probe: DirectoryProbe
    /// Whether granted directories are used only through mounts, where revocations take effect. Otherwise a granted directory that no
    /// mount of its view shows is used itself.
    public var usesMountsOnly: Bool
    /// How long to wait for others.
    var timeouts = Timeouts()

    /// By default: the commands' store, looked up in this process, with or without mounts.
    public init(store: String? = nil, probe: DirectoryProbe = .inProcess, usesMountsOnly: Bool = false) {
        self.store = store
        self.probe = probe
        self.usesMountsOnly = usesMountsOnly
    }

    /// The environment of this task.
    @TaskLocal public static var current = GrantEnvironment()

    /// Opens the store, which stays open in this process. With `create`, a missing store is made.
    /// Throws the errors of `GrantStore.init`, and `.usage` for an invalid path. A missing store is
    /// `.storeUnavailable`, since it says nothing about a directory.
    public func administrator(create: Bool = false) throws(GrantError) -> GrantAdministrator {
        let directory = try storeDirectory()
        do throws(GrantError) {
            return GrantAdministrator(store: try OpenStores.store(directory, create: create), probe: probe)
        } catch {
            guard error.code == .notFound else { throw error }
            throw GrantError(.storeUnavailable, error.message, cause: error.cause, advice: error.advice)
        }
    }

    /// The directory of the store, which need not exist.
    func storeDirectory() throws(GrantError) -> String { try StoreLocation.directory(explicit: store.map { Array($0.utf8) }) }
}
