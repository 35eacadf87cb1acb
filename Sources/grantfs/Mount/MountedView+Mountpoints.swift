import GrantAdministration
import GrantModel
import GrantSystem
import GrantViewFS

// Grants that another daemon shows in this mount, because they have a cache mode of their own: see `CacheMounts`.
extension MountedView {
    /// Has a mountpoint for each of these grants that is active and not missing, and refuses the names of those that are withdrawn. What is
    /// mounted on a name that is refused, gone, or by now another grant's is detached by the kernel, once it asks for the name.
    ///
    /// Locking: call it with `state` held.
    func placeMountpoints(for grants: [Grant], at now: Instant, _ state: inout State, _ isChanged: inout Bool) {
        let isActive = { (grant: Grant) in grant.state(at: now) == .active }
        let placed = placed?.contents
        let present = grants.filter { isActive($0) && placed?.isMissing($0) != true }
        let occupants = Dictionary(present.map { ($0.name, VirtualDirectories.Occupant($0)) }, uniquingKeysWith: { first, _ in first })
        if files.names.setMountpoints(for: occupants) {
            isChanged = true
            // Before it is mounted, the kernel knows no name.
            if files.session != nil { state.mountpointsCachedUntil = Clock.monotonic + VirtualDirectories.expiry }
        }
        let refused = Dictionary(grants.filter { !isActive($0) }.map { ($0.id, $0.name) }, uniquingKeysWith: { first, _ in first })
        for (id, name) in state.refusedMountpoints where refused[id] != name {
            files.names.set(ShownPath(name), nil)
            isChanged = true
        }
        for (id, name) in refused where state.refusedMountpoints[id] != name {
            files.names.set(ShownPath(name), .refused(id))
            isChanged = true
        }
        state.refusedMountpoints = refused
    }
}
