import GrantModel
import GrantStore

extension GrantAdministrator {
    /// Revokes the grants: on disk first, then in every mount. If the store cannot be written, the
    /// mounts close the grants nevertheless, and the error says that nothing was recorded.
    /// `progress` is called on this thread while it takes long.
    ///
    /// `endsHolders`: kills the processes that hold something of a mount whose daemon has died, because nothing else makes the kernel
    /// drop its cache. They may hold something of any grant of that mount.
    ///
    /// `recorded` is called once the revocation is on disk, before any mount is asked. Without `waitsForDisk` it may not be yet: for
    /// grants that are removed next.
    public func revoke(
        _ grants: [Grant], timeout: Double = standardTimeout, endsHolders: Bool = false, waitsForDisk: Bool = true,
        progress: ((CoordinationProgress) -> Void)? = nil, recorded: (() -> Void)? = nil
    ) throws(GrantError) -> [GrantChange] {
        let withdrawn: [Grant]
        do throws(GrantError) {
            withdrawn = try store.revoke(grants.map(\.id), by: actor, waitsForDisk: waitsForDisk)
        } catch {
            let shut = ChangeBroadcast(store: store, withdraws: true).close(grants, timeout: timeout)
            throw GrantError(
                error.code, "the withdrawal is not recorded", cause: error.description,
                advice:
                    "\(shut.done) of \(shut.all) mounts refuse access until they are mounted again: "
                    + "repair the store and revoke again"
            )
        }
        recorded?()
        return try broadcast(withdrawn, timeout, withdraws: true, endsHolders: endsHolders, progress: progress)
    }
}
