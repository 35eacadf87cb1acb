import Glibc
import GrantModel
import GrantStore

// The store when descriptors or memory have run out: that is no damage, and nobody is refused for it.
extension MountedView {
    /// Opens the store anew, because its file was written to or it could not be read before.
    ///
    /// That takes descriptors, of which the daemon keeps some for itself; but those of the whole machine may have run out. Then the connection
    /// that is open goes on serving, as it needs none, and the next look tries again. What is damaged throws as before.
    ///
    /// Locking: `state` is held by the caller.
    func reopen(_ state: inout State) throws(GrantError) {
        let directory = state.store.directory
        do throws(GrantError) {
            state.store = try MountedView.patiently { () throws(GrantError) in try GrantStore(directory: directory, create: false) }
            state.wantsReopening = false
        } catch {
            guard error.code == .exhausted, !state.isRefusing else { throw error }
            state.wantsReopening = true
        }
    }

    /// Tries again for a tenth of a second while something has run out.
    static func patiently<Result>(_ body: () throws(GrantError) -> Result) throws(GrantError) -> Result {
        for _ in 0..<20 {
            do throws(GrantError) {
                return try body()
            } catch {
                guard error.code == .exhausted else { throw error }
                usleep(5_000)
            }
        }
        return try body()
    }
}
