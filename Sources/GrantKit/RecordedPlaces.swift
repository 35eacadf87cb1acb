import GrantBookmarks
import GrantModel
import GrantSystem

/// Tells whether directories are where their bookmarks say.
///
/// It keeps what a resolver has learnt about the mounted filesystems until the mounts change.
///
/// Locking: one lock around the resolver that nobody uses, held for an access.
final class RecordedPlaces: Sendable {
    static let process = RecordedPlaces()

    private struct Idle: @unchecked Sendable {
        // Sendable: whoever takes it out is its only user.
        let mounts: UInt64
        let resolver: BookmarkResolver
    }

    private let idle = Lock<Idle?>(nil)

    /// Whether all directories of these grants are certainly at their recorded paths.
    ///
    /// - Parameter mounts: The number of `CurrentMounts.current`, from before the call.
    func hold(_ grants: [Grant], mounts: UInt64) -> Bool {
        // What a lease allows is asked each time.
        if grants.contains(where: { $0.fleetActivation != nil }) { return false }
        let known = idle.withLock { idle in
            defer { idle = nil }
            return idle
        }
        let resolver = known.flatMap { $0.mounts == mounts ? $0.resolver : nil } ?? BookmarkResolver()
        defer { idle.withLock { $0 = Idle(mounts: mounts, resolver: resolver) } }
        return grants.allSatisfy { resolver.isAtRecordedPath($0.bookmark) }
    }
}
