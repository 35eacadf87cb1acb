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

    package static var now: Instant { Instant(nanoseconds: Clock.realtime) }

    package func broadcast(
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
