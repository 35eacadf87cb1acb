import CGrantSystem
import Glibc
import GrantSystem
import Synchronization

// Hands nodes over to the next daemon: everything that the kernel relies on, and a way to the file.
extension Node {
    /// The sizes of structures that are copied whole, which both daemons must agree on.
    static let layout: [UInt32] = [
        UInt32(truncatingIfNeeded: MemoryLayout<NodeKey>.size), UInt32(truncatingIfNeeded: MemoryLayout<FileStatus>.size),
    ]

    /// Writes a node. `hasDied`: the daemon's memory is gone, except for the node itself.
    func handOver(_ id: UInt64, to state: inout HandoverWriter, hasDied: Bool = false) {
        state.put(id)
        state.put(key.device)
        state.put(key.inode)
        state.put(key.birth)
        state.put(scope)
        state.put(type)
        state.put(lookups.load(ordering: .relaxed))
        state.put(descriptor: Int32(truncatingIfNeeded: pinState.load(ordering: .acquiring) & Self.descriptorMask) - 1)
        let handle = handle.copy(withBlock: !hasDied)
        state.put(flag: handle != nil)
        if let handle {
            state.put(handle.type)
            withUnsafeBytes(of: handle.bytes) {
                state.put(bytes: UnsafeRawBufferPointer(rebasing: $0[..<min($0.count, Int(truncatingIfNeeded: handle.length))]))
            }
        }
        let name = hasDied ? nil : UnsafePointer<CChar>(bitPattern: name.load(ordering: .relaxed))
        state.put(bytes: UnsafeRawBufferPointer(start: name, count: name.map { strlen($0) } ?? 0))
        state.put(parent.load(ordering: .relaxed))
        for time in [found.load(ordering: .relaxed), unlinked.load(ordering: .relaxed), renewed.load(ordering: .relaxed)] {
            state.put(time)
        }
        state.put(dataVersion.load(ordering: .relaxed))
        state.put(openers.load(ordering: .relaxed))
        state.put(writers.load(ordering: .relaxed))
        state.put(flag: keepsDescriptor.load(ordering: .relaxed))
        state.put(flag: reportedStale.load(ordering: .relaxed))
        state.put(flag: isShared.load(ordering: .relaxed))
        state.put(lockRequests.load(ordering: .relaxed))
        state.put(flag: wasListedBare.load(ordering: .relaxed))
        state.put(flag: isTimeDirty.load(ordering: .relaxed))
        state.put(containment.load(ordering: .relaxed))
        state.put(lookedAt.load(ordering: .relaxed))
        handOverCachedOpens(to: &state)
    }

    /// Restores a node of a scope that `scopes` finds.
    ///
    /// Other openers of its file are unknown, so it counts as shared.
    static func takeOver(from state: inout HandoverReader, _ scopes: (UInt32) -> ScopeNodes?) throws(Errno) -> Node {
        let key = NodeKey(device: try state.take(), inode: try state.take(), birth: try state.take())
        let scope: UInt32 = try state.take()
        guard let owner = scopes(scope) else { throw Errno(EBADMSG) }
        let type: mode_t = try state.take()
        let lookups: UInt64 = try state.take()
        // After an error here the process ends, and closes the number.
        let node = Node(key: key, owner: owner, type: type, descriptor: try state.takeDescriptor())
        try node.takeOver(rest: &state, lookups: lookups)
        return node
    }

    private func takeOver(rest state: inout HandoverReader, lookups count: UInt64) throws(Errno) {
        lookups.store(count, ordering: .relaxed)
        if try state.takeFlag() {
            var copy = clinux_handle()
            copy.type = try state.take()
            let bytes = try state.takeBytes()
            guard bytes.count <= MemoryLayout.size(ofValue: copy.bytes) else { throw Errno(EBADMSG) }
            copy.length = UInt32(truncatingIfNeeded: bytes.count)
            withUnsafeMutableBytes(of: &copy.bytes) { $0.copyBytes(from: bytes) }
            handle.store(copy)
        }
        let name = try state.takeBytes()
        if !name.isEmpty { self.name.store(withCString(name) { UInt(bitPattern: strdup($0)) }, ordering: .relaxed) }
        parent.store(try state.take(), ordering: .relaxed)
        found.store(try state.take(), ordering: .relaxed)
        unlinked.store(try state.take(), ordering: .relaxed)
        renewed.store(try state.take(), ordering: .relaxed)
        dataVersion.store(try state.take(), ordering: .relaxed)
        openers.store(try state.take(), ordering: .relaxed)
        writers.store(try state.take(), ordering: .relaxed)
        // The earlier daemon does not write it.
        wasOpenForWriting.store(type == S_IFREG, ordering: .relaxed)
        keepsDescriptor.store(try state.takeFlag(), ordering: .relaxed)
        reportedStale.store(try state.takeFlag(), ordering: .relaxed)
        isShared.store(try state.takeFlag(), ordering: .relaxed)
        lockRequests.store(try state.take(), ordering: .relaxed)
        wasListedBare.store(try state.takeFlag(), ordering: .relaxed)
        isTimeDirty.store(try state.takeFlag(), ordering: .relaxed)
        containment.store(try state.take() & ~Containment.isBeingProtected, ordering: .relaxed)
        lookedAt.store(try state.take(), ordering: .relaxed)
        try takeOverCached(from: &state)
        oplock.store(type == S_IFREG && openers.load(ordering: .relaxed) > 0 ? .shared : .unknown, ordering: .relaxed)
    }
}
