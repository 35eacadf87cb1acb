import CGrantSystem
import GrantCoordinator
import GrantFUSE
import Glibc
import GrantModel
import GrantSystem
import Synchronization
import GrantViewTree

/// What was moved out of one granted directory, on its way out of the grant. Belongs to one thread, which serves no request and may wait for the
/// scope's filesystem; one at a time for a scope.
///
/// The order is that of a revocation, for some nodes of a scope: they are refused first; who was inside then ends; then the kernel forgets. What was
/// written before they were refused reaches the files.
struct Departure {
    let view: ViewFS
    let scope: ScopeNodes

    /// So long those who were inside are waited for before the kernel is told: microseconds.
    private static let grace = 25_000
    private static let pauseBetweenLooks: UInt32 = 100_000

    /// Judges the nodes, and takes those out that have left, with all below them.
    func carryOut(of suspects: Set<UInt64>) {
        var (gone, hasDirectory) = (Set<UInt64>(), false)
        for id in suspects { depart(id, &gone, &hasDirectory) }
        // What was found in a directory before it was refused is seen in the next round; who finds something later sees that it is refused.
        var seen = -1
        while hasDirectory, gone.count != seen {
            seen = gone.count
            for id in scope.ids where !gone.contains(id) { depart(id, &gone, &hasDirectory) }
        }
        if gone.isEmpty { return }
        refuse(Containment.escaping, gone)
        let (departure, nodes) = (self, gone)
        // The next need not wait for what follows.
        do throws(Errno) {
            try WorkerThread.start("grantfs-leaving") { departure.finish(nodes) }.detach()
        } catch {
            finish(nodes)
        }
    }

    private func depart(_ id: UInt64, _ gone: inout Set<UInt64>, _ hasDirectory: inout Bool) {
        _ = view.tree.withLive(id, in: scope) { node in
            guard node.pointee.containment.load(ordering: .relaxed) & Containment.escaped == 0, hasEscaped(id, node) else { return }
            view.tree.depart(id, node)
            gone.insert(id)
            if node.pointee.type == S_IFDIR { hasDirectory = true }
        }
    }

    private func refuse(_ containment: UInt8, _ nodes: Set<UInt64>) {
        for id in nodes {
            _ = view.tree.withLive(id, in: scope) { $0.pointee.containment.bitwiseOr(containment, ordering: .sequentiallyConsistent) }
        }
        view.files.refuse(containment) { nodes.contains($0) }
        view.directories.refuse(containment) { nodes.contains($0) }
    }

    private func finish(_ nodes: Set<UInt64>) {
        let id = ScopeID(rawValue: scope.scope)
        var inside = view.coordinator.occupants(of: id)
        let deadline = Clock.monotonic + Int64(truncatingIfNeeded: Self.grace) &* 1_000
        while !inside.isEmpty, Clock.monotonic < deadline {
            usleep(50)
            inside.removeAll { !view.coordinator.isInside($0) }
        }
        _ = view.locks.refuse(nodes, in: id)
        let invalidator = DepartureInvalidator(view: view, gate: id, nodes: nodes)
        invalidator.writeBack()
        refuse(Containment.escaped, nodes)
        invalidator.forget()
        endLocks(nodes)
        // What hung in the filesystem meanwhile may have told the kernel something anew.
        if inside.isEmpty { return }
        while !inside.isEmpty, view.session?.hasEnded == false {
            usleep(Self.pauseBetweenLooks)
            inside.removeAll { !view.coordinator.isInside($0) }
        }
        _ = view.locks.refuse(nodes, in: id)
        invalidator.forget()
    }

    private func endLocks(_ nodes: Set<UInt64>) {
        view.locks.releaseFiles(nodes, in: ScopeID(rawValue: scope.scope))
        for number in view.files.refuse(Containment.escaped, { nodes.contains($0) }) {
            guard let file = view.files.acquire(number) else { continue }
            _ = clinux_flock(file.pointee.descriptor, LOCK_UN)
            view.files.drop(number)
        }
        for node in nodes { view.locks.wholeFileUnlocked(of: node) }
    }
}
