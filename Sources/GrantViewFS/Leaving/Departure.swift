import CGrantSystem
import GrantCoordinator
import GrantFUSE
import Glibc
import GrantModel
import GrantSystem
import Synchronization
import GrantViewTree

/// Removes nodes from a grant whose files were moved out of its directory, or to hidden names.
///
/// Belongs to one thread, which serves no request and may block on the scope's filesystem. Each
/// scope has one at a time.
///
/// The order is that of a revocation, for some nodes of a scope. First they are refused, then
/// operations inside end, then the kernel's caches are invalidated. Data written before the refusal
/// reaches the files.
struct Departure {
    let view: ViewFS
    let scope: ScopeNodes

    /// How long operations inside may take before the kernel is notified: microseconds.
    private static let grace = 25_000
    private static let pauseBetweenLooks: UInt32 = 100_000

    /// Checks the suspects, and removes those that have left with their subtrees.
    func carryOut(of suspects: Set<UInt64>) {
        var (gone, hasDirectory) = (Set<UInt64>(), false)
        for id in suspects { depart(id, &gone, &hasDirectory) }
        // Nodes found in a directory before it was refused are seen in the next round. Later
        // lookups see the refusal.
        var seen = -1
        while hasDirectory, gone.count != seen {
            seen = gone.count
            for id in scope.ids where !gone.contains(id) { depart(id, &gone, &hasDirectory) }
        }
        let protected = claimProtection(of: suspects.subtracting(gone))
        if scope.ruled.hasRules { listAgain(suspects.subtracting(gone)) }
        if gone.isEmpty, protected.isEmpty { return }
        refuse(Containment.escaping, gone)
        let (departure, nodes) = (self, gone)
        let finish = { @Sendable in
            if !protected.isEmpty { departure.protect(protected) }
            if !nodes.isEmpty { departure.finish(nodes) }
        }
        // The next check need not wait for the rest.
        do throws(Errno) {
            try WorkerThread.start("grantfs-leaving", finish).detach()
        } catch {
            finish()
        }
    }

    func depart(_ id: UInt64, _ gone: inout Set<UInt64>, _ hasDirectory: inout Bool) {
        _ = view.tree.withLive(id, in: scope) { node in
            guard node.pointee.containment.load(ordering: .relaxed) & Containment.escaped == 0, hasEscaped(id, node) else { return }
            view.tree.depart(id, node)
            gone.insert(id)
            if node.pointee.type == S_IFDIR { hasDirectory = true }
        }
    }

    func refuse(_ containment: UInt8, _ nodes: Set<UInt64>) {
        for id in nodes {
            _ = view.tree.withLive(id, in: scope) { $0.pointee.containment.bitwiseOr(containment, ordering: .sequentiallyConsistent) }
        }
        view.files.refuse(containment) { nodes.contains($0) }
        view.directories.refuse(containment) { nodes.contains($0) }
    }

    /// Ends locks, write-back and caches of refused nodes. Returns whether nothing is cached.
    @discardableResult
    func invalidate(_ nodes: Set<UInt64>) -> Bool {
        _ = view.locks.refuse(nodes, in: ScopeID(rawValue: scope.scope))
        let invalidator = DepartureInvalidator(view: view, scope: scope, nodes: nodes)
        invalidator.writeBack()
        refuse(Containment.escaped, nodes)
        let isDone = invalidator.forget()
        if scope.ruled.hasRules { expireNames(of: nodes) }
        endLocks(nodes)
        if isDone { for id in nodes { _ = view.tree.withLive(id, in: scope) { $0.pointee.isForgotten.store(true, ordering: .releasing) } } }
        return isDone
    }

    /// Makes the kernel look up the names of hidden files again. Their directories stay.
    private func expireNames(of nodes: Set<UInt64>) {
        guard let notifier = view.session?.notifier, notifier.expireAllEntries() != 0 else { return }
        let notifications = BlockingNotifications(view)
        for id in nodes {
            let parent = view.tree.withLive(id, in: scope) { $0.pointee.parent.load(ordering: .relaxed) } ?? 0
            guard parent != 0, !nodes.contains(parent), let path = view.tree.knownPath(of: id, in: scope),
                let name = path.split(separator: UInt8(ascii: "/")).last
            else { continue }
            withCString(Array(name)) { notifications.expire($0, in: parent, of: scope.scope) }
        }
        notifications.send()
        view.wait(upTo: Self.namesMicroseconds) {
            notifications.poll()
            return notifications.isDone
        }
    }

    private static let namesMicroseconds = 200_000

    private func finish(_ nodes: Set<UInt64>) {
        InjectedFault.stop(at: "departing")
        let id = ScopeID(rawValue: scope.scope)
        var inside = awaitOperations()
        invalidate(nodes)
        // Operations that hung in the filesystem may have replied in between.
        if inside.isEmpty { return }
        while !inside.isEmpty, view.session?.hasEnded == false {
            usleep(Self.pauseBetweenLooks)
            inside.removeAll { !view.coordinator.isInside($0) }
        }
        _ = view.locks.refuse(nodes, in: id)
        DepartureInvalidator(view: view, scope: scope, nodes: nodes).forget()
    }

    // MARK: files that stay

    /// Invalidates the kernel's listings of directories, which may show other names by now.
    private func listAgain(_ nodes: Set<UInt64>) {
        guard let notifier = view.session?.notifier else { return }
        let directories = nodes.filter { view.isDirectory($0) }
        if directories.isEmpty { return }
        for node in directories { _ = notifier.invalidateAttributes(NodeID(node)) }
        let notifications = BlockingNotifications(view)
        for node in directories { notifications.invalidateListing(of: node, in: scope.scope) }
        notifications.send()
        view.wait(upTo: Self.grace) {
            notifications.poll()
            return notifications.isDone
        }
    }

    /// Those nodes whose protection this thread has to complete.
    private func claimProtection(of nodes: Set<UInt64>) -> Set<UInt64> {
        nodes.filter { id in view.tree.withLive(id, in: scope) { $0.pointee.claimProtection() } ?? false }
    }

    /// Completes the protection of nodes that this thread has claimed.
    ///
    /// The order is that of a narrowing. Data written before reaches the files.
    func protect(_ nodes: Set<UInt64>) {
        awaitOperations()
        let invalidator = DepartureInvalidator(view: view, scope: scope, nodes: nodes)
        invalidator.writeBack()
        // A file may be permitted again.
        let protected = nodes.filter { id in view.tree.withLive(id, in: scope) { $0.pointee.completeProtection() } ?? false }
        view.files.refuse(Containment.protected) { protected.contains($0) }
        // Pages mapped for writing become read-only, so that the next store is noticed.
        invalidator.writeBack()
        // With write-back the kernel asks before a write once it has no attributes: see
        // `probeWritable`.
        if let notifier = view.session?.notifier { for node in nodes { _ = notifier.invalidateAttributes(NodeID(node)) } }
        for id in nodes { _ = view.tree.withLive(id, in: scope) { $0.pointee.endProtection() } }
    }

    /// Waits for operations inside, and returns those that stay.
    @discardableResult
    private func awaitOperations() -> [Coordinator.Occupant] {
        var inside = view.coordinator.occupants(of: ScopeID(rawValue: scope.scope))
        let deadline = Clock.monotonic + Int64(truncatingIfNeeded: Self.grace) &* 1_000
        while !inside.isEmpty, Clock.monotonic < deadline {
            usleep(50)
            inside.removeAll { !view.coordinator.isInside($0) }
        }
        return inside
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
