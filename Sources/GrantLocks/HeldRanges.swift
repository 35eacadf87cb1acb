import Glibc

/// The locked ranges of one file in this mount, with their owners, found by position.
///
/// A search takes a few steps even in a long list. The ranges are ordered by their starts. Ranges
/// of different owners overlap only if they are shared, so each range records how far the ranges
/// before it reach.
struct HeldRanges {
    struct Held {
        let range: LockedRange
        /// `LockDescription.number`.
        let description: UInt64
        let owner: UInt64
        let pid: pid_t
        /// The last byte of this range and of all ranges before it.
        fileprivate(set) var reach: Int64
    }

    private(set) var all: [Held] = []

    /// Replaces `removed` by `added`, all of one description.
    mutating func change(_ description: LockDescription, removed: [LockedRange], added: [LockedRange]) {
        if removed.count > 16 {
            // In one pass, because each single removal moves all later ranges.
            let starts = Set(removed.map(\.start))
            all.removeAll { $0.description == description.number && starts.contains($0.range.start) }
            settle(from: 0, whole: true)
        } else {
            for range in removed {
                let place = place(of: range.start, description.number)
                guard place < all.count, all[place].description == description.number, all[place].range.start == range.start else {
                    continue
                }
                all.remove(at: place)
                settle(from: place)
            }
        }
        for range in added {
            let place = place(of: range.start, description.number)
            let held = Held(range: range, description: description.number, owner: description.owner, pid: description.pid, reach: -1)
            all.insert(held, at: place)
            settle(from: place)
        }
    }

    /// Calls `body` with each range that overlaps `range`, until it returns false.
    ///
    /// Returns how many ranges were visited.
    @discardableResult
    func visit(overlapping range: LockedRange, _ body: (Held) -> Bool) -> Int {
        var steps = 0
        var place = self.place(behind: range.end)
        while place > 0 {
            place -= 1
            steps += 1
            if all[place].reach < range.start { break }
            if all[place].range.end >= range.start, !body(all[place]) { break }
        }
        return steps
    }

    /// Whether another owner than `owner` holds a lock that conflicts with `range`.
    func isBlocked(_ range: LockedRange, for owner: UInt64) -> Bool {
        var isBlocked = false
        visit(overlapping: range) { held in
            isBlocked = held.owner != owner && held.range.conflicts(with: range)
            return !isBlocked
        }
        return isBlocked
    }

    /// The first place that is not before `start` and `description`.
    private func place(of start: Int64, _ description: UInt64) -> Int {
        partition { $0.range.start < start || ($0.range.start == start && $0.description < description) }
    }

    /// The first place whose range begins behind `end`.
    private func place(behind end: Int64) -> Int { partition { $0.range.start <= end } }

    private func partition(_ isBefore: (Held) -> Bool) -> Int {
        var (low, high) = (0, all.count)
        while low < high {
            let middle = (low + high) / 2
            if isBefore(all[middle]) { low = middle + 1 } else { high = middle }
        }
        return low
    }

    /// Corrects `reach` from `place` on, up to the first range for which it is unchanged.
    private mutating func settle(from place: Int, whole: Bool = false) {
        var reach = place > 0 ? all[place - 1].reach : -1
        for place in place..<all.count {
            reach = max(reach, all[place].range.end)
            if !whole, all[place].reach == reach { return }
            all[place].reach = reach
        }
    }
}
