import Foundation
import Glibc
import GrantAdministration
import GrantModel
import GrantStore

/// Which store the functions ask that, like Apple's, take none: bookmarks, security scopes, file coordination.
///
/// A program that says nothing has the store that the commands have: `$GRANTFS_STORE`, else `/var/lib/grantfs` for root and
/// `$XDG_DATA_HOME/grantfs` for others. Another one is bound for a part of the program:
///
/// ```swift
/// GrantEnvironment.$current.withValue(GrantEnvironment(store: "/srv/store")) {
///     _ = url.startAccessingSecurityScopedResource()
/// }
/// ```
///
/// Tasks inherit it; threads and operation queues of one's own do not. There is nothing like it at Apple's, where the system keeps the
/// one store of all.
public struct GrantEnvironment: Sendable {
    /// The directory of the store, absolute; nil for the one the commands have.
    public var store: String?
    /// How directories are looked at. `.inProcess` waits as long as a filesystem takes to answer.
    public var probe: DirectoryProbe
    /// Whether what was granted is reached through mounts alone, where a revocation binds. Else a granted directory that no mount of its
    /// view shows is used itself.
    public var usesMountsOnly: Bool
    /// How long others are waited for.
    var timeouts = Timeouts()

    /// The commands' store, looked at by the caller itself, mounts or not, unless something else is said.
    public init(store: String? = nil, probe: DirectoryProbe = .inProcess, usesMountsOnly: Bool = false) {
        self.store = store
        self.probe = probe
        self.usesMountsOnly = usesMountsOnly
    }

    /// What is in force in this task.
    @TaskLocal public static var current = GrantEnvironment()

    /// The operations on the store, which stays open in this process. With `create`, a missing store is made. Errors: those of `GrantStore.init`; `.usage` for a path that
    /// cannot be one.
    public func administrator(create: Bool = false) throws(GrantError) -> GrantAdministrator {
        let directory = try StoreLocation.directory(explicit: store.map { Array($0.utf8) })
        return GrantAdministrator(store: try OpenStores.store(directory, create: create), probe: probe)
    }
}
