// Claims that wait for the answers of presenters: after the last conflicting claim has ended, and
// before the claim is held.
extension ClaimTable {
    /// Defers a held claim until `answered`, while presenters of these purposes are asked.
    ///
    /// This may grant other claims, which those presenters need before they answer. No effect for
    /// an id that is unknown or not held.
    public mutating func ask(_ id: ClaimID, of purposes: Set<[UInt8]>) -> Effect {
        guard let place = place(of: id), claims[place].isHeld else { return Effect() }
        claims[place].isHeld = false
        claims[place].awaited = purposes
        return Effect(granted: promote())
    }

    /// Waits for presenters of fewer purposes. Claims that overtook this one keep their place.
    public mutating func narrow(_ id: ClaimID, to purposes: Set<[UInt8]>) {
        guard let place = place(of: id), let awaited = claims[place].awaited else { return }
        claims[place].awaited = awaited.intersection(purposes)
    }

    /// Ends the deferral of a claim.
    ///
    /// The claim is granted, waits for claims that overtook it, or is found to deadlock.
    public mutating func answered(_ id: ClaimID) -> Effect {
        guard let place = place(of: id), claims[place].awaited != nil else { return Effect() }
        claims[place].awaited = nil
        return promoteAndBreakDeadlocks()
    }
}
