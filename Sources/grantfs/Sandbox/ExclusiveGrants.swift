import GrantAdministration
import GrantModel
import GrantStore
import GrantSystem

/// The mount of a sandbox's grants with `:exclusive`, beside that of its view. The cache mode is one for a mount.
struct ExclusiveGrants {
    /// Where each grant is outside the sandbox.
    let places: [GrantName: [UInt8]]
    private let temporary: TemporaryMount
    private let store: GrantStore

    /// Mounts these grants of the view. nil when there are none. The mount ends with this process, however that ends.
    init?(_ names: [GrantName], of view: ViewName, _ store: GrantStore, isAudited: Bool) throws(GrantError) {
        if names.isEmpty { return nil }
        let temporary = try TemporaryMount.create(in: store, hasOwnView: false)
        let mode = CacheMode.exclusive
        do throws(GrantError) {
            let isMounted = try ChildDaemons(store: store).start(
                flags: ["--part", "--temporary", temporary.file], options: "cache=\(mode.rawValue)" + (isAudited ? ",audit" : ""),
                name: view.description, at: Array(temporary.mountpoint.utf8))
            guard isMounted else {
                throw GrantError(
                    .mountFailed, "what is granted with :\(mode.rawValue) cannot be shown to the program",
                    advice: "see the lines above; grantfs doctor looks at the machine")
            }
        } catch {
            try? temporary.clean()
            throw error
        }
        let mountpoint = Array(temporary.mountpoint.utf8)
        places = Dictionary(names.map { ($0, CanonicalPath.join(mountpoint, $0.bytes)) }, uniquingKeysWith: { first, _ in first })
        (self.temporary, self.store) = (temporary, store)
    }

    /// Unmounts, and waits a moment for the daemon.
    func end() throws(GrantError) {
        let daemons = try store.mounts().filter { $0.mountpoint == Array(temporary.mountpoint.utf8) }
        try temporary.clean()
        UnmountCommand.awaitEnd(of: daemons)
    }
}
