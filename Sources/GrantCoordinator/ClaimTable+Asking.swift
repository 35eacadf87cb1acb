// Claims for which presenters are asked, between the moment when no claim is in their way and the moment when they are held.
extension ClaimTable {
    /// Puts off a claim that is held until `answered`: presenters of these purposes are asked first. Others may be granted by it: what a presenter
    /// needs to answer. An id that is not there, or not held, changes nothing.
    public mutating func ask(_ id: ClaimID, of purposes: Set<[UInt8]>) -> Effect {
        guard let place = place(of: id), claims[place].isHeld else { return Effect() }
        claims[place].isHeld = false
        claims[place].awaited = purposes
        return Effect(granted: promote())
    }

    /// Presenters of fewer purposes are waited for; what has come before is not taken back.
    public mutating func narrow(_ id: ClaimID, to purposes: Set<[UInt8]>) {
        guard let place = place(of: id), let awaited = claims[place].awaited else { return }
        claims[place].awaited = awaited.intersection(purposes)
    }

    /// Nobody is asked any more: it is granted, or waits for the claims that went before it meanwhile, or is found to wait in a circle.
    public mutating func answered(_ id: ClaimID) -> Effect {
        guard let place = place(of: id), claims[place].awaited != nil else { return Effect() }
        claims[place].awaited = nil
        return promoteAndBreakDeadlocks()
    }
}
