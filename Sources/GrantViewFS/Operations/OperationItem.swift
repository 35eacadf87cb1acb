import GrantCoordinator

/// What an operation is about to touch.
struct OperationItem {
    var identities: [ItemID]
    var ancestors: [ItemID] = []
    var places: [ItemPlace] = []
    /// What is moved or removed, with all that lies below it.
    var displaced: [ItemID] = []
    /// It may lie anywhere in the scope: a file with several names, or one whose directory cannot be told.
    var isAnywhere = false

    func isCovered(by item: ClaimedItem) -> Bool {
        if isAnywhere { return true }
        if let place = item.place, places.contains(place) { return true }
        if item.identities.contains(where: { identities.contains($0) || ancestors.contains($0) }) { return true }
        return displaced.contains { item.ancestors.contains($0) }
    }
}
