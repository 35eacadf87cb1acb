import CGrantSystem
import GrantCoordinator
import GrantFUSE
import Glibc
import GrantSystem
import Synchronization
import GrantViewTree

// How operations treat files that were moved out of the granted directory on the host, even if
// programs hold them open. `Departures` detects them.
extension Entry {
    /// The refusal of the entry by bits of `Containment`, or nil.
    func refusal(by containment: UInt8) -> Verdict? {
        if isRefused(by: UInt32(truncatingIfNeeded: containment & Containment.escaped)) { return .revoked }
        let isProtected =
            switch self {
            case .write: containment & Containment.protecting != 0
            case .cacheWrite: containment & Containment.protected == Containment.protected
            case .read, .closing: false
            }
        return isProtected && containment & Containment.escaped == 0 ? .readOnly : nil
    }
}

extension Verdict {
    /// The error number of a refusal.
    var error: Int32 { self == .readOnly ? EROFS : EACCES }
}

extension ViewFS {
    /// How long a check of a file's place stays valid without reported renames, in milliseconds.
    ///
    /// Together with the kernel's attribute timeout it is below a second. It is longer if the
    /// kernel caches no attributes. It is also longer if the kernel caches them for so long that
    /// the scan of everything finds moves sooner.
    private var relied: UInt32 { policy.writeBack || policy.distrustsData ? 150 : 40 }

    /// The refusal of an operation by the place of its file, or nil.
    ///
    /// Its file has left the granted directory, or a rule hides or protects it. Call it inside the
    /// scope: a node is refused first, and then the departure waits for operations inside.
    @inline(__always)
    func refusal(of id: NodeID, _ node: NodePointer, for entry: Entry) -> Verdict? {
        let containment = node.pointee.containment.load(ordering: .sequentiallyConsistent)
        return containment == 0 ? nil : refusal(id, node, containment, for: entry)
    }

    /// Does the same for an open file or directory.
    @inline(__always)
    func refusal(by containment: borrowing Atomic<UInt8>, _ entry: Entry) -> Verdict? {
        let bits = containment.load(ordering: .sequentiallyConsistent)
        return bits == 0 ? nil : entry.refusal(by: bits)
    }

    @inline(never)
    private func refusal(_ id: NodeID, _ node: NodePointer, _ containment: UInt8, for entry: Entry) -> Verdict? {
        if containment & Containment.escaped != 0 { return entry.refusal(by: containment) }
        guard containment & (Containment.isDoubted | Containment.isUnwatched) != 0 else { return entry.refusal(by: containment) }
        let (time, relied) = (Clock.monotonic, relied)
        let isDoubted = containment & Containment.isDoubted != 0
        let moment = node.pointee.withOwner { $0.doubts.load(ordering: .sequentiallyConsistent) }
        // It was just found by its name in a checked directory.
        if !isDoubted, time &- node.pointee.found.load(ordering: .relaxed) < Int64(truncatingIfNeeded: relied) &* 1_000_000 {
            return entry.refusal(by: containment)
        }
        let now = UInt32(truncatingIfNeeded: time / 1_000_000)
        guard now &- node.pointee.lookedAt.load(ordering: .relaxed) >= relied else { return entry.refusal(by: containment) }
        let descriptor = tree.pin(node)
        defer { tree.unpin(id.rawValue, node) }
        // A node that cannot be reopened fails by itself.
        guard descriptor >= 0, let root = node.pointee.withOwner({ tree.rootDescriptor(of: $0) }) else { return nil }
        let place = place(of: descriptor, below: root, node, id: id.rawValue)
        if place == 1 {
            node.pointee.lookedAt.store(now, ordering: .relaxed)
            tree.settle(node, since: moment)
            return entry.refusal(by: node.pointee.containment.load(ordering: .sequentiallyConsistent))
        }
        departures.suspect(id.rawValue, in: node.pointee.scope)
        if place == 0 || isDoubted {
            if place == 0, node.pointee.type == S_IFDIR { return entry.refusal(by: Containment.escaping) }
            // It may have another name, which another thread finds out.
            departures.awaitVerdict(in: node.pointee.scope)
            let now = node.pointee.containment.load(ordering: .sequentiallyConsistent)
            if now & Containment.escaped != 0 { return entry.refusal(by: now) }
        }
        node.pointee.lookedAt.store(now, ordering: .relaxed)
        return entry.refusal(by: node.pointee.containment.load(ordering: .sequentiallyConsistent))
    }

    /// Looks at a node again if a move was reported since `moment`, a value of `HostWatch.renamesSeen`.
    ///
    /// The report may have concerned the node's file, and found no node then. Call it after the node
    /// is interned. `moment` is from before its file was opened.
    @inline(__always)
    func settleMoves(since moment: UInt64, of id: UInt64, _ node: NodePointer) {
        if hostWatch.renamesSeen != moment { lookAgain(at: id, node) }
    }

    @inline(never)
    private func lookAgain(at id: UInt64, _ node: NodePointer) { departures.lookAgain(at: id, node) }

    /// Whether a node's directory left the grant while the node was looked up in it.
    ///
    /// The node becomes a suspect then.
    @inline(__always)
    func leaves(with directory: NodePointer, _ id: UInt64) -> Bool {
        guard directory.pointee.containment.load(ordering: .sequentiallyConsistent) & Containment.escaped != 0 else { return false }
        departures.suspect(id, in: directory.pointee.scope)
        return true
    }
}
