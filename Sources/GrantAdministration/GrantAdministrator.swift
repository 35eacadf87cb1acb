import GrantBookmarks
import GrantControl
import GrantModel
import GrantStore
import GrantSystem

/// The operations behind the commands. Each change is first made durable in the store and then sent
/// to every mount of the view, concurrently. The mounts' answers are returned with it. Nothing is
/// printed here.
public struct GrantAdministrator: Sendable {
    /// The type in /proc/mounts.
    public static let filesystemType = "fuse.grantfs"
    /// The default time for mounts to confirm, in seconds.
    public static let standardTimeout = 10.0

    public let store: GrantStore
    /// The actor in the log.
    public let actor: Actor
    /// How directories are looked up.
    public let probe: DirectoryProbe

    public init(store: GrantStore, actor: Actor = .current(), probe: DirectoryProbe = .inProcess) {
        self.store = store
        self.actor = actor
        self.probe = probe
    }

    static var now: Instant { Instant(nanoseconds: Clock.realtime) }

    /// Returns the selected grants, each once, in the order of the selectors. `.notFound` and `.ambiguous` for the first selector that
    /// fails.
    ///
    /// `verb`: the action on the grants. The error then says that it was done to none, as in
    /// “nothing was revoked”.
    public func select(_ selectors: [Selector], view: ViewName? = nil, to verb: String? = nil) throws(GrantError) -> [Grant] {
        guard let verb else { return try select(selectors, view: view) }
        do throws(GrantError) {
            return try select(selectors, view: view)
        } catch {
            throw error.saying("nothing was \(verb)")
        }
    }

    private func select(_ selectors: [Selector], view: ViewName?) throws(GrantError) -> [Grant] {
        let all = try store.grants()
        var result: [Grant] = []
        for selector in selectors {
            let grant: Grant
            do throws(GrantError) {
                grant = try selector.select(from: all, view: view)
            } catch {
                if error.code == .notFound, let view { try requireKnown(view) }
                throw error
            }
            if !result.contains(where: { $0.id == grant.id }) { result.append(grant) }
        }
        return result
    }

    func broadcast(
        _ grants: [Grant], _ timeout: Double, withdraws: Bool = false, endsHolders: Bool = false,
        progress: ((CoordinationProgress) -> Void)? = nil
    ) throws(GrantError) -> [GrantChange] {
        do throws(GrantError) {
            return try ChangeBroadcast(store: store, withdraws: withdraws, endsHolders: endsHolders).broadcast(
                grants, timeout: timeout, progress: progress)
        } catch {
            // What failed is the question, not the change.
            throw GrantError(
                .unconfirmed, "the change is recorded, and the mounts cannot be asked whether it is in force", cause: error.description,
                advice: "the same command again waits for them")
        }
    }
}
