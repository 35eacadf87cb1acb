/// Finds claims by the item that they use.
///
/// A lookup costs as much as the item has parent directories, however many claims there are.
struct ItemIndex: Sendable {
    /// What two items that overlap have in common: the place, or the identity of one of them.
    private enum Relation: Hashable {
        case at(ItemPlace)
        case itself(ItemID)
        case below(ItemID)
    }

    private struct Key: Hashable {
        let relation: Relation
        let use: ItemUse
    }

    /// In order of arrival.
    private var claims: [Key: [ClaimID]] = [:]

    mutating func insert(_ id: ClaimID, _ accesses: [ItemAccess]) {
        for access in accesses {
            for relation in ItemIndex.relations(of: access.item) {
                ItemIndex.insert(id, into: &claims[Key(relation: relation, use: access.use), default: []])
            }
        }
    }

    mutating func remove(_ id: ClaimID, _ accesses: [ItemAccess]) {
        for access in accesses {
            for relation in ItemIndex.relations(of: access.item) {
                let key = Key(relation: relation, use: access.use)
                guard let count = claims[key]?.count else { continue }
                let place = claims[key]?.place(of: id) ?? count
                guard place < count, claims[key]?[place] == id else { continue }
                if count == 1 { claims[key] = nil } else { claims[key]?.remove(at: place) }
            }
        }
    }

    /// Returns the newest claim with a conflicting access that satisfies the condition.
    ///
    /// - Parameter limit: Only claims that arrived before it count. All count if it is nil.
    func newest(
        conflictingWith accesses: [ItemAccess], before limit: ClaimID? = nil, where condition: (ClaimID) -> Bool
    ) -> ClaimID? {
        var newest: ClaimID?
        for access in accesses {
            for relation in ItemIndex.overlaps(of: access.item) {
                for use in ItemUse.allCases where use.excludes(access.use) {
                    guard let list = claims[Key(relation: relation, use: use)] else { continue }
                    var place = limit.map { list.place(of: $0) } ?? list.count
                    while place > 0 {
                        place -= 1
                        if let newest, list[place] <= newest { break }
                        guard condition(list[place]) else { continue }
                        newest = list[place]
                        break
                    }
                }
            }
        }
        return newest
    }

    /// The relations under which a claim is found.
    private static func relations(of item: ClaimedItem) -> [Relation] {
        (item.place.map { [.at($0)] } ?? []) + item.identities.map { .itself($0) } + item.ancestors.map { .below($0) }
    }

    /// The relations of the items that overlap this one: see `ClaimedItem.overlaps`.
    private static func overlaps(of item: ClaimedItem) -> [Relation] {
        (item.place.map { [.at($0)] } ?? []) + item.identities.flatMap { [.itself($0), .below($0)] } + item.ancestors.map { .itself($0) }
    }

    /// An item may have the same relation twice.
    private static func insert(_ id: ClaimID, into list: inout [ClaimID]) {
        guard let last = list.last, last >= id else { return list.append(id) }
        let place = list.place(of: id)
        if list[place] != id { list.insert(id, at: place) }
    }
}

extension [ClaimID] {
    /// The position of the first claim that is not older, in order of arrival.
    func place(of id: ClaimID) -> Int {
        var (low, high) = (0, count)
        while low < high {
            let middle = (low + high) / 2
            if self[middle] < id { low = middle + 1 } else { high = middle }
        }
        return low
    }
}
