import CGrantSystem
import GrantCoordinator
import GrantFUSE
import Glibc
import GrantSystem
import Synchronization
import GrantViewTree

// What was moved out of a granted directory beside the mount has left the grant, whoever still holds it: how an operation sees it. Who finds it
// is `Departures`.
extension ViewFS {
    /// For so long an operation relies on where a file was seen last, where moves are not told: milliseconds. With the time for which the kernel
    /// keeps attributes, below a second; where it keeps none, or for so long that all is looked at in turns, longer.
    private var relied: UInt32 { policy.writeBack || policy.distrustsData ? 150 : 40 }

    /// Whether an operation on a node is refused because its file has left the granted directory. To be asked inside the scope: whoever refuses a
    /// node first says so and then waits for those inside.
    @inline(__always)
    func isOutside(_ id: NodeID, _ node: NodePointer, for entry: Entry) -> Bool {
        let containment = node.pointee.containment.load(ordering: .sequentiallyConsistent)
        return containment != 0 && isOutside(id, node, containment, for: entry)
    }

    /// The same of an open file or directory.
    @inline(__always)
    func refuses(_ containment: borrowing Atomic<UInt8>, _ entry: Entry) -> Bool {
        entry.isRefused(by: UInt32(truncatingIfNeeded: containment.load(ordering: .sequentiallyConsistent) & Containment.escaped))
    }

    @inline(never)
    private func isOutside(_ id: NodeID, _ node: NodePointer, _ containment: UInt8, for entry: Entry) -> Bool {
        if containment & Containment.escaped != 0 {
            return entry.isRefused(by: UInt32(truncatingIfNeeded: containment & Containment.escaped))
        }
        let (time, relied) = (Clock.monotonic, relied)
        // Found by its name in a directory that was looked at.
        if time &- node.pointee.found.load(ordering: .relaxed) < Int64(truncatingIfNeeded: relied) &* 1_000_000 { return false }
        let now = UInt32(truncatingIfNeeded: time / 1_000_000)
        guard now &- node.pointee.lookedAt.load(ordering: .relaxed) >= relied else { return false }
        let descriptor = tree.pin(node)
        defer { tree.unpin(id.rawValue, node) }
        // What cannot be opened again answers for itself.
        guard descriptor >= 0, let root = node.pointee.withOwner({ tree.rootDescriptor(of: $0) }) else { return false }
        let place = clinux_lies_below(root, descriptor)
        if place != 1 { departures.suspect(id.rawValue, in: node.pointee.scope) }
        if place == 0 {
            if node.pointee.type == S_IFDIR { return entry.isRefused(by: UInt32(truncatingIfNeeded: Containment.escaping)) }
            // It may have another name: somebody else finds out.
            departures.awaitVerdict(in: node.pointee.scope)
            let now = node.pointee.containment.load(ordering: .sequentiallyConsistent)
            if now & Containment.escaped != 0 { return entry.isRefused(by: UInt32(truncatingIfNeeded: now & Containment.escaped)) }
        }
        node.pointee.lookedAt.store(now, ordering: .relaxed)
        return false
    }

    /// Takes a node with its directory out of the grant: it was found in it at the moment at which it left. True when that is so.
    @inline(__always)
    func leaves(with directory: NodePointer, _ id: UInt64) -> Bool {
        guard directory.pointee.containment.load(ordering: .sequentiallyConsistent) & Containment.escaped != 0 else { return false }
        departures.suspect(id, in: directory.pointee.scope)
        return true
    }
}
