import GrantSystem

extension PresenterTelling {
    /// The message about an event for a presenter of `presented`. The result is nil if the event
    /// does not affect it.
    public init?(_ event: SessionEvent, to presenter: UInt64, of presented: [UInt8]) {
        let path = event.path
        let isBelow = path != presented && MountTable.path(path, isAtOrBelow: presented)
        let isAtOrAbove = MountTable.path(presented, isAtOrBelow: path)
        let kind: Kind
        var newPath: [UInt8]?
        switch event.kind {
        case .claimWaits, .claimGranted, .claimEnded: return nil
        case .changed where isBelow: kind = .subitemChanged
        case .appeared where isBelow: kind = .subitemAppeared
        case .removed where isBelow: kind = .subitemRemoved
        case .changed where isAtOrAbove, .appeared where isAtOrAbove, .removed where isAtOrAbove: kind = .changed
        case .moved where isBelow: (kind, newPath) = (.subitemMoved, event.newPath)
        case .moved where isAtOrAbove: (kind, newPath) = (.moved, event.newPath.map { $0 + presented.dropFirst(path.count) })
        case .moved:
            // From elsewhere: to the item's own place, or below it.
            guard let place = event.newPath, MountTable.path(place, isAtOrBelow: presented) else { return nil }
            self.init(presenter: presenter, event: event.number, kind: place == presented ? .changed : .subitemAppeared, path: place)
            return
        case .revoked where isAtOrAbove: kind = .released
        case .restored where isAtOrAbove: kind = .restored
        case .changed, .appeared, .removed, .revoked, .restored: return nil
        }
        self.init(presenter: presenter, event: event.number, kind: kind, path: isBelow ? path : presented, newPath: newPath)
    }
}
