import GrantModel
import GrantStore
import GrantSystem

/// The stores that this process has open. Opening one costs some twenty system calls and, when it is closed, a wait for the disk; a program that
/// enumerates a directory asks for each file.
///
/// Locking: one lock around the list, held for a look or a change of it and nothing else.
enum OpenStores {
    private static let stores = Lock<[String: GrantStore]>([:])

    /// The store in `directory`, open. One that is not there any more, or another one at its place, is not taken for the old.
    static func store(_ directory: String, create: Bool) throws(GrantError) -> GrantStore {
        // An open store knows when its database was removed or exchanged.
        if let open = stores.withLock({ $0[directory] }), (try? open.dataVersion()) != nil { return open }
        stores.withLock { $0[directory] = nil }
        let opened = try GrantStore(directory: directory, create: create)
        stores.withLock { $0[directory] = opened }
        return opened
    }
}
