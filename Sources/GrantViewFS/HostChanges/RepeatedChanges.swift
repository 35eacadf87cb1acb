import Glibc
import GrantSystem
import GrantViewTree

/// Changes on the host that are relayed twice again, a moment later.
///
/// A reply made before a change can be in flight while the kernel is notified, and then makes it
/// cache stale data (fs/fuse/dir.c, fuse_lookup_name). A kernel that trusts its caches until they
/// are invalidated needs a repetition.
///
/// Not thread-safe: belongs to one `HostChangeRelay`.
struct RepeatedChanges {
    struct Item: Hashable {
        let scope: UInt32
        /// The directory with the name. If it is unknown, 0 with an empty name.
        let directory: UInt64
        let name: [CChar]
        /// The changed file. It is nil if a name changed.
        let file: NodeKey?
    }

    /// When the change was added, and how often it was repeated.
    private var pending: [Item: (since: Int64, turns: Int)] = [:]
    /// An invalidation of everything, with the same fields.
    private var all: (since: Int64, turns: Int)?
    private var next: Int64 = .max

    /// Nanoseconds after a change. Replies take microseconds, or longer on an overloaded machine.
    private static let delays: [Int64] = [100_000_000, 2_000_000_000]
    /// Nanoseconds between two checks.
    private static let pause: Int64 = 20_000_000
    private static let most = 16_384

    mutating func add(_ item: Item, now: Int64) {
        // Above the limit everything is invalidated again.
        if pending.count >= Self.most { return addAll(now: now) }
        pending[item] = (now, 0)
        next = min(next, now + Self.delays[0])
    }

    mutating func addAll(now: Int64) {
        pending = [:]
        all = (now, 0)
        next = min(next, now + Self.delays[0])
    }

    func millisecondsUntilDue(now: Int64) -> Int32 { next == .max ? .max : Int32(clamping: max(0, next - now) / 1_000_000 + 1) }

    /// Takes the changes that are due. `all`: everything is due.
    mutating func takeDue(now: Int64) -> (items: [Item], all: Bool) {
        if now < next { return ([], false) }
        var items: [Item] = []
        next = .max
        for (item, place) in pending {
            if now >= place.since + Self.delays[place.turns] {
                items.append(item)
                pending[item] = place.turns + 1 < Self.delays.count ? (place.since, place.turns + 1) : nil
            }
            if let left = pending[item] { next = min(next, left.since + Self.delays[left.turns]) }
        }
        var isAllDue = false
        if let place = all {
            isAllDue = now >= place.since + Self.delays[place.turns]
            if isAllDue { all = place.turns + 1 < Self.delays.count ? (place.since, place.turns + 1) : nil }
            if let left = all { next = min(next, left.since + Self.delays[left.turns]) }
        }
        if next != .max { next = max(next, now + Self.pause) }
        return (items, isAllDue)
    }
}
