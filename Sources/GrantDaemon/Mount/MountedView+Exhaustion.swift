import Glibc
import GrantModel
import GrantStore

// Reading the store when descriptors or memory are exhausted: the store is not damaged, so nothing is refused.
extension MountedView {
    /// Opens the store again, because its file was written to or it could not be read before.
    ///
    /// That needs descriptors. The daemon reserves some, but those of the whole machine may be exhausted. Then the present connection stays in
    /// use, and the next check of the store tries again. Throws if the store is damaged.
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

    /// Runs `body`, and repeats it for a tenth of a second while it throws `.exhausted`.
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
