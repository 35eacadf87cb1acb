import GrantModel
import GrantStore
import GrantSystem

/// A cache of open stores. Opening one costs some twenty system calls and, on closing, a wait for
/// the disk. A program that enumerates a directory asks for each file.
///
/// Locking: one lock around the list, held for an access.
enum OpenStores {
    private static let stores = Lock<[String: GrantStore]>([:])

    /// Returns the store in `directory`, open. A cached one that was removed or replaced is not used.
    static func store(_ directory: String, create: Bool) throws(GrantError) -> GrantStore {
        if let (store, _) = known(directory) { return store }
        stores.withLock { $0[directory] = nil }
        let opened = try GrantStore(directory: directory, create: create)
        opened.keepGrants()
        stores.withLock { $0[directory] = opened }
        return opened
    }

    /// Returns the store in `directory` if it is open already, and its present stamp.
    static func known(_ directory: String) -> (store: GrantStore, stamp: GrantStore.ChangeStamp)? {
        // An open store notices when its database was removed or replaced.
        guard let open = stores.withLock({ $0[directory] }), let stamp = try? open.changeStamp() else { return nil }
        return (open, stamp)
    }
}
