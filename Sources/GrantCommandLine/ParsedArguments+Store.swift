import GrantModel
import GrantMounts
import GrantStore

extension ParsedArguments {
    package func storeDirectory() throws(GrantError) -> String { try StoreLocation.directory(explicit: bytes("store")) }

    /// Opens the existing store, and cleans up after killed commands. Throws `.notFound` if there
    /// is none.
    package func openStore() throws(GrantError) -> GrantStore {
        let store = try GrantStore(directory: try storeDirectory(), create: false)
        TemporaryMount.sweep(store)
        return store
    }

    /// Opens the existing store, or nil if there is none: then nothing is granted.
    package func openStoreIfThere() throws(GrantError) -> GrantStore? {
        do {
            return try openStore()
        } catch {
            if error.code == .notFound { return nil }
            throw error
        }
    }
}
