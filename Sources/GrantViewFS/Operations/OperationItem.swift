import GrantCoordinator

/// The files and names that an operation touches.
struct OperationItem {
    var identities: [ItemID]
    var ancestors: [ItemID] = []
    var places: [ItemPlace] = []
    /// Items that are moved or removed with their whole subtrees.
    var displaced: [ItemID] = []
    /// Whether the item may lie anywhere in the scope.
    ///
    /// True for a file with several names, or with an unknown directory.
    var isAnywhere = false

    func isCovered(by item: ClaimedItem) -> Bool {
        if isAnywhere { return true }
        if let place = item.place, places.contains(place) { return true }
        if item.identities.contains(where: { identities.contains($0) || ancestors.contains($0) }) { return true }
        return displaced.contains { item.ancestors.contains($0) }
    }
}
