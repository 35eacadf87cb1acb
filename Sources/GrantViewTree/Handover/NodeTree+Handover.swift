import CGrantSystem
import Glibc
import GrantSystem
import Synchronization

// Hands all nodes of a mount over to the next daemon, with their scopes. The tree is not used
// meanwhile.
extension NodeTree {
    /// Sizes of structures that are copied whole. Daemons that differ cannot hand over.
    public static var handoverLayout: [UInt32] { Node.layout }

    public func handOver(to state: inout HandoverWriter) {
        devices.handOver(to: &state)
        let scopes = scopes.withLock { $0.values.sorted { $0.scope < $1.scope } }
        // Scopes may share a base.
        let bases = Set(scopes.map(\.baseNumber).filter { $0 >= 0 }).sorted()
        state.put(UInt64(truncatingIfNeeded: bases.count))
        for base in bases { state.put(descriptor: base) }
        state.put(UInt64(truncatingIfNeeded: scopes.count))
        for scope in scopes { scope.handOver(to: &state, base: bases.firstIndex(of: scope.baseNumber)) }
        nodes.handOverIDs(to: &state)
        let limit = nodes.indexLimit
        var count: UInt64 = 0
        for index in 0..<limit where isHandedOver(index) { count += 1 }
        state.put(count)
        for index in 0..<limit where isHandedOver(index) {
            if let (id, node) = nodes.element(at: index) { node.pointee.handOver(id, to: &state) }
        }
    }

    /// Excludes nodes that only a lost worker holds.
    private func isHandedOver(_ index: UInt32) -> Bool {
        nodes.element(at: index).map { $0.element.pointee.lookups.load(ordering: .relaxed) > 0 } ?? false
    }

    /// Restores an empty tree.
    public func takeOver(from state: inout HandoverReader) throws(Errno) {
        try devices.takeOver(from: &state)
        var bases: [HandleBase] = []
        for _ in 0..<(try state.takeCount(ofAtLeast: 4)) {
            let number = try state.takeDescriptor()
            guard number >= 0 else { throw Errno(EBADMSG) }
            bases.append(HandleBase(FileDescriptor(owning: number)))
        }
        for _ in 0..<(try state.takeCount(ofAtLeast: 4)) {
            let scope = try ScopeNodes.takeOver(from: &state, bases)
            scopes.withLock { $0[scope.scope] = scope }
            budget.addRoots(1)
        }
        try nodes.takeOverIDs(from: &state)
        let known = scopes.withLock { $0 }
        for _ in 0..<(try state.takeCount(ofAtLeast: 64)) {
            let id: UInt64 = try state.take()
            let node = try Node.takeOver(from: &state) { known[$0] }
            let (key, owner, type) = (node.key, node.owner, node.type)
            let hasDeparted = node.containment.load(ordering: .relaxed) & Containment.escaped != 0
            let hasDescriptor = node.pinState.load(ordering: .relaxed) & Node.descriptorMask != 0
            try nodes.takeOver(id, node, isMarked: type == S_IFDIR)
            owner.takeOver(id, key, hasDeparted: hasDeparted, in: nodes)
            if hasDescriptor { _ = budget.add(owner.scope) }
        }
    }
}

extension ScopeNodes {
    fileprivate func handOver(to state: inout HandoverWriter, base: Int?) {
        state.put(scope)
        state.put(base.map { UInt32(truncatingIfNeeded: $0) } ?? .max)
        // A scope whose base is gone opens nothing any more, not even by name.
        state.put(flag: opensByHandle)
        state.put(flag: crossesMounts)
        state.put(flag: usesCallerGroups)
        state.put(flag: isReleased.load(ordering: .relaxed))
        state.put(flag: isUnwatched.load(ordering: .relaxed))
        state.put(cacheBypass.load(ordering: .relaxed))
        state.put(flag: root != nil)
        if let root {
            state.put(root.id)
            state.put(root.key.device)
            state.put(root.key.inode)
            state.put(root.key.birth)
        }
    }

    fileprivate static func takeOver(from state: inout HandoverReader, _ bases: [HandleBase]) throws(Errno) -> ScopeNodes {
        let (number, place): (UInt32, UInt32) = (try state.take(), try state.take())
        let opensByHandle = try state.takeFlag()
        guard place == .max || Int(truncatingIfNeeded: place) < bases.count else { throw Errno(EBADMSG) }
        let base = place == .max ? nil : bases[Int(truncatingIfNeeded: place)]
        let made = ScopeNodes(
            scope: number, handleBase: base, crossesMounts: try state.takeFlag(), usesCallerGroups: try state.takeFlag(),
            opensByHandle: opensByHandle)
        made.isReleased.store(try state.takeFlag(), ordering: .relaxed)
        made.isUnwatched.store(try state.takeFlag(), ordering: .relaxed)
        made.cacheBypass.store(try state.take(), ordering: .relaxed)
        if try state.takeFlag() {
            made.root = (try state.take(), NodeKey(device: try state.take(), inode: try state.take(), birth: try state.take()))
        }
        return made
    }
}
