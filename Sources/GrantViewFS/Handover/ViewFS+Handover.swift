import CGrantSystem
import GrantCoordinator
import GrantFUSE
import Glibc
import GrantModel
import GrantSystem
import GrantViewTree

/// Why a mount cannot be handed over at the moment, for people.
public struct HandoverRefusal: Error, Sendable {
    public let reason: String

    public init(_ reason: String) { self.reason = reason }
}

// Hands a mount over to the next daemon. The old one is paused and keeps all its state, so that it
// can continue if the next one fails.
extension ViewFS {
    /// Sizes of structures that are copied whole, which both daemons must agree on.
    public static var handoverLayout: [UInt32] { NodeTree.handoverLayout + [UInt32(truncatingIfNeeded: lockSlots.upperBound)] }

    /// Pauses everything: the background threads, then the workers.
    ///
    /// `endQuiesce` ends the pause. If this function throws, nothing is paused. Call it on a thread
    /// that serves no requests and holds no lock.
    ///
    /// - Parameter deadline: A time of `Clock.monotonic`.
    public func quiesce(until deadline: Int64) throws(HandoverRefusal) {
        if let oplocks, !oplocks.breakAll(until: deadline) {
            throw HandoverRefusal("what programs have stored in mappings of locked files could not be written down in time")
        }
        guard pauseGate.pause(until: deadline) else {
            oplocks?.resume()
            throw HandoverRefusal("a filesystem that it looks at does not answer")
        }
        guard let session, session.pause(until: deadline) else {
            pauseGate.endPause()
            oplocks?.resume()
            throw HandoverRefusal("operations are under way that do not end: a granted filesystem does not answer")
        }
        locks.answerInterrupted()
        guard closeQueue.isIdle else {
            endQuiesce()
            throw HandoverRefusal("files are being released, which does not end: a granted filesystem does not answer")
        }
    }

    /// Ends `quiesce`.
    public func endQuiesce() {
        session?.endPause()
        pauseGate.endPause()
        oplocks?.resume()
    }

    /// Writes the state for the next daemon, while everything is paused.
    ///
    /// - Parameter closed: Scopes that are withdrawn and not yet removed.
    public func handOver(open: [Scope], closed: [Scope], to state: inout HandoverWriter) throws(HandoverRefusal) {
        guard let session else { throw HandoverRefusal("it is not mounted") }
        state.put(flag: kernelOpens)
        state.put(descriptor: session.device)
        state.put(bytes: session.negotiation.request)
        state.put(bytes: session.negotiation.answer)
        state.put(coordinator.nextScope)
        state.put(flag: hasPlainSetGID.load(ordering: .relaxed))
        state.put(flag: leavesAccessTimes.load(ordering: .relaxed))
        state.put(flag: leavesDirectoryAccessTimes.load(ordering: .relaxed))
        let counters = session.counters
        state.put(UInt64(truncatingIfNeeded: counters.count))
        for counter in counters { state.put(counter) }
        tree.handOver(to: &state)
        files.handOver(to: &state)
        directories.handOver(to: &state)
        state.put(UInt64(truncatingIfNeeded: open.count + closed.count))
        for scope in open + closed { handOver(scope, to: &state) }
        lostWrites.handOver(to: &state)
        droppedWrites.handOver(to: &state)
        names.handOver(to: &state)
        locks.handOver(to: &state)
        let unserved = session.unserved + locks.waitingMessages
        state.put(UInt64(truncatingIfNeeded: unserved.count))
        for message in unserved { state.put(bytes: message) }
        // No request was refused.
        state.put(0 as UInt64)
    }

    /// Restores that state in a new daemon. Call `begin` next.
    ///
    /// - Returns: The scopes, open and closed, in the order in which they were written.
    public func takeOver(
        from state: inout HandoverReader, source: String, words: [String], leavesSetID: Bool, mapsDirectly: Bool, idlePolling: IdlePolling?
    ) throws(Errno) -> [Scope] {
        // Since version 3.
        kernelOpens = state.version >= 3 ? try state.takeFlag() : false
        let device = try state.takeDescriptor()
        guard device >= 0 else { throw Errno(EBADMSG) }
        let negotiation = Negotiation(request: try state.takeBytes(), answer: try state.takeBytes())
        let session = try takeOver(
            device: FileDescriptor(owning: device), negotiation, source: source, words: words, leavesSetID: leavesSetID,
            mapsDirectly: mapsDirectly, idlePolling: idlePolling)
        guard coordinator.takeOver(nextScope: try state.take()) else { throw Errno(EBADMSG) }
        hasPlainSetGID.store(try state.takeFlag(), ordering: .relaxed)
        leavesAccessTimes.store(try state.takeFlag(), ordering: .relaxed)
        leavesDirectoryAccessTimes.store(try state.takeFlag(), ordering: .relaxed)
        var counters: [UInt64] = []
        for _ in 0..<(try state.takeCount(ofAtLeast: 8)) { counters.append(try state.take()) }
        session.takeOver(counters: counters)
        try tree.takeOver(from: &state)
        try files.takeOver(from: &state)
        try directories.takeOver(from: &state)
        if kernelOpens { takeOverCached() }
        var scopes: [Scope] = []
        for _ in 0..<(try state.takeCount(ofAtLeast: 16)) { scopes.append(try takeOverScope(from: &state)) }
        try lostWrites.takeOver(from: &state)
        try droppedWrites.takeOver(from: &state)
        try names.takeOver(from: &state)
        try locks.takeOver(from: &state, tree)
        var unserved: [[UInt8]] = []
        for _ in 0..<(try state.takeCount(ofAtLeast: 8)) { unserved.append(try state.takeBytes()) }
        offers.awaitAskers()
        session.takeOver(unserved: unserved)
        if state.version >= 3 {
            var refused: [[UInt8]] = []
            for _ in 0..<(try state.takeCount(ofAtLeast: 8)) { refused.append(try state.takeBytes()) }
            session.takeOver(refused: refused)
        }
        return scopes
    }

    // MARK: scopes

    private func handOver(_ scope: Scope, to state: inout HandoverWriter) {
        state.put(scope.id.rawValue)
        state.put(grant: scope.grant)
        state.put(scope.activation)
        state.put(scope.rootNode)
        state.put(scope.rootStatus)
        state.put(scope.mount ?? 0)
        state.put(flag: scope.isLocal)
        state.put(flag: scope.isMoveTold)
        state.put(flag: scope.wantsReadOnly.load(ordering: .relaxed))
        state.put(coordinator.gate(scope.id).pointee.refused.rawValue)
        state.put(flag: scope.isClosed.load(ordering: .relaxed))
        state.put(flag: scope.releaseState.load(ordering: .relaxed) == .done)
        state.put(scope.named.load(ordering: .relaxed))
        state.put(flag: scope.dropsOnNextLookup.load(ordering: .relaxed))
        let (isReleased, isEmpty) = scope.closing.withLock { ($0.isReleased, $0.isEmpty) }
        state.put(flag: isReleased)
        state.put(flag: isEmpty)
        let counts = coordinator.counts(of: scope.id)
        for count in [counts.operations, counts.readBytes, counts.writtenBytes] { state.put(count) }
    }

    private func takeOverScope(from state: inout HandoverReader) throws(Errno) -> Scope {
        let id = ScopeID(rawValue: try state.take())
        let grant = try state.takeGrant()
        guard id.rawValue > 0, id.rawValue < coordinator.nextScope, let nodes = tree.scope(id.rawValue)
        else { throw Errno(EBADMSG) }
        audit?.register(id.rawValue, of: grant)
        let (activation, rootNode): (Int64, UInt64) = (try state.take(), try state.take())
        let (status, mount): (FileStatus, UInt64) = (try state.take(), try state.take())
        let (isLocal, wasMoveTold, readOnly) = (try state.takeFlag(), try state.takeFlag(), try state.takeFlag())
        let refusals = Refusals(rawValue: try state.take())
        let isClosed = try state.takeFlag()
        if !isClosed { watch(nodes) }
        let isMoveTold = wasMoveTold && nodes.watchMeans.load(ordering: .relaxed) == ChangeWatch.Means.names.rawValue
        let scope = Scope(
            id: id, grant: grant, activation: activation, nodes: nodes, rootNode: rootNode, rootStatus: status,
            mount: mount == 0 ? nil : mount,
            isLocal: isLocal, isMoveTold: isMoveTold, readOnly: readOnly)
        coordinator.close(id, refusals)
        scope.isClosed.store(isClosed, ordering: .relaxed)
        scope.releaseState.store(try state.takeFlag() ? .done : .notYet, ordering: .relaxed)
        scope.named.store(try state.take(), ordering: .relaxed)
        scope.dropsOnNextLookup.store(try state.takeFlag(), ordering: .relaxed)
        let (isReleased, isEmpty) = (try state.takeFlag(), try state.takeFlag())
        scope.closing.withLock { closing in
            (closing.isReleased, closing.isEmpty) = (isReleased, isEmpty)
            if isClosed { closing.outcome = .done }
        }
        try records?.add(scope, next: coordinator.nextScope, isShut: refusals.contains(.read), isOffered: refusals.contains(.offered))
        coordinator.takeOver(
            ScopeCounts(operations: try state.take(), readBytes: try state.take(), writtenBytes: try state.take()), of: id)
        return scope
    }

    /// Watches a scope with this process's own watches.
    ///
    /// Changes in between show when the kernel's timeouts expire. Operations check the places of
    /// nodes until `watchKnownDirectories` has looked at them.
    private func watch(_ nodes: ScopeNodes) {
        tree.withRoot(of: nodes) { descriptor in
            guard descriptor >= 0 else { return }
            let directory = FileDescriptor(owning: descriptor)
            hostWatch.begin(nodes, directory: directory)
            nodes.ruled.folding = FilesystemKind(of: directory).folding
            if let device = nodes.root?.key.device { nodes.ruled.names = namesLocks.lock(of: device) }
            _ = directory.release()
        }
        let isTold = nodes.watchMeans.load(ordering: .relaxed) == ChangeWatch.Means.names.rawValue && !nodes.crossesMounts
        let wasUnwatched = nodes.isUnwatched.exchange(!isTold, ordering: .relaxed)
        if isTold {
            nodes.hasUnwatched.store(true, ordering: .relaxed)
            tree.doubt(nodes)
        }
        if isTold || wasUnwatched { return }
        for id in nodes.ids { tree.nodes.find(id)?.pointee.containment.bitwiseOr(Containment.isUnwatched, ordering: .relaxed) }
    }

    /// Watches again the directories that the kernel knows, on a thread that ends afterwards.
    ///
    /// Call it after `begin`.
    public func watchKnownDirectories(of scopes: [Scope]) {
        // Searches for open files that left a grant meanwhile.
        hostWatch.countRename()
        hostWatch.mayHaveMissed.store(true, ordering: .releasing)
        _ = BackgroundTask(mayHang: true) { [self] in
            for scope in scopes where !scope.isClosed.load(ordering: .acquiring) {
                watchPlace(ofDocumentIn: scope.nodes)
                for id in scope.nodes.ids where isDirectory(id) {
                    pauseGate.run {
                        _ = tree.withLive(id, in: scope.nodes) { watch(id, $0) }
                    }
                }
                // Moves in directories that were not watched yet were reported in vain.
                if scope.nodes.hasUnwatched.exchange(false, ordering: .sequentiallyConsistent) {
                    pauseGate.run { departures.lookAgain(in: scope.nodes) }
                }
            }
        }
    }
}

extension HandoverWriter {
    public mutating func put(grant: GrantID) {
        put(grant.high)
        put(grant.low)
    }
}

extension HandoverReader {
    public mutating func takeGrant() throws(Errno) -> GrantID { GrantID(high: try take(), low: try take()) }
}
