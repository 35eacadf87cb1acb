import GrantBookmarks
import GrantControl
import GrantModel
import GrantStore
import GrantSystem

/// The operations behind the commands. Each change is first made durable in the store, and then told to every mount of the
/// view, all at once; what the mounts said comes back with it. Nothing is printed here.
public struct GrantAdministrator: Sendable {
    /// As /proc/mounts names it.
    public static let filesystemType = "fuse.grantfs"
    /// How long mounts have to confirm, in seconds, when nobody says otherwise.
    public static let standardTimeout = 10.0

    public let store: GrantStore
    /// Who the log says did it.
    public let actor: Actor
    /// How directories are looked at.
    public let lookout: Lookout

    public init(store: GrantStore, actor: Actor = .current(), lookout: Lookout = .here) {
        self.store = store
        self.actor = actor
        self.lookout = lookout
    }

    static var now: Instant { Instant(nanoseconds: Clock.realtime) }

    /// The grants that the selectors mean, each once, in their order. `.notFound` and `.ambiguous` for the first that is wrong.
    public func select(_ selectors: [Selector], view: ViewName? = nil) throws(GrantError) -> [Grant] {
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

    func announce(
        _ grants: [Grant], _ timeout: Double, withdraws: Bool = false, endsHolders: Bool = false,
        progress: ((CoordinationProgress) -> Void)? = nil
    ) throws(GrantError) -> [GrantChange] {
        try Announcer(store: store, withdraws: withdraws, endsHolders: endsHolders).announce(grants, timeout: timeout, progress: progress)
    }
}
