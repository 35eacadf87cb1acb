import GrantCoordinator

/// What an operation touches.
struct OperationItem {
    var identities: [ItemID]
    var ancestors: [ItemID] = []
    var places: [ItemPlace] = []
    /// What is moved or removed with its whole subtree.
    var displaced: [ItemID] = []
    /// It may lie anywhere in the scope: a file with several names, or one whose directory is unknown.
    var isAnywhere = false

    func isCovered(by item: ClaimedItem) -> Bool {
        if isAnywhere { return true }
        if let place = item.place, places.contains(place) { return true }
        if item.identities.contains(where: { identities.contains($0) || ancestors.contains($0) }) { return true }
        return displaced.contains { item.ancestors.contains($0) }
    }
}
