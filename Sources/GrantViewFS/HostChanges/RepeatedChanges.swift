import Glibc
import GrantSystem
import GrantViewTree

/// Changes beside the mount that are told twice more, a moment later. An answer that was made before a change can be on its way while the kernel is told of it, and makes it know something old right afterwards (fs/fuse/dir.c,
/// fuse_lookup_name). Where the kernel keeps that until it is told otherwise, somebody has to.
///
/// Not safe to share: belongs to one `HostChangeRelay`.
struct RepeatedChanges {
    struct Item: Hashable {
        let scope: UInt32
        /// The directory in which something has the name; 0 and no name where that is not known.
        let directory: UInt64
        let name: [CChar]
        /// The file that was changed; nil when names were.
        let file: NodeKey?
    }

    /// Since when, and how often it was repeated.
    private var pending: [Item: (since: Int64, turns: Int)] = [:]
    /// When anything was to be forgotten: the same for all.
    private var all: (since: Int64, turns: Int)?
    private var next: Int64 = .max

    /// Nanoseconds after a change. Answers take microseconds; on a machine with too much to do longer.
    private static let delays: [Int64] = [100_000_000, 2_000_000_000]
    /// Between two looks.
    private static let pause: Int64 = 20_000_000
    private static let most = 16_384

    mutating func add(_ item: Item, now: Int64) {
        // Beyond that all is forgotten once more.
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

    /// What is to be told once more now; and whether everything is.
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
