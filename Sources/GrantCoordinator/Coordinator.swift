import Synchronization

/// Admits operations into scopes or refuses them, and lists the operations inside.
///
/// The protocol is Dekker's: an operation stores its mark and then loads the gate. A revoker stores
/// to the gate and then reads the marks. Both are sequentially consistent, so at least one sees the
/// other, and no operation is inside unseen once the gate is closed. Entering touches one cache
/// line of the worker's own and reads one that all share.
///
/// Locking: no lock on the path of an operation. `makeScope` is called by one thread at a time (the
/// owner of the scope table).
public final class Coordinator: @unchecked Sendable {
    // Sendable: the arrays are allocated once and never move. Their elements are atomics.
    public let slotCount: Int
    private let slots: UnsafeMutablePointer<Slot>
    let cells: ScopeCells
    private let chunks: UnsafeMutablePointer<UnsafeMutablePointer<Gate>?>
    private let scopeCount = Atomic<UInt32>(1)
    private let denials = Atomic<Bool>(false)

    private static let gatesPerChunk = 1024
    private static let chunkLimit = 1 << 14

    /// A worker's mark, on cache lines of its own.
    struct Slot: ~Copyable {
        let mark = Atomic<UInt64>(0)
        let sequence = Atomic<UInt32>(0)
        // 128 bytes: two lines, because processors fetch lines in pairs.
        private let padding: (UInt64, UInt64, UInt64, UInt64, UInt64, UInt64, UInt64, UInt64) = (0, 0, 0, 0, 0, 0, 0, 0)
        private let padding2: (UInt64, UInt64, UInt64, UInt64, UInt64, UInt64) = (0, 0, 0, 0, 0, 0)
    }

    /// `slotCount`: how many threads can be inside scopes at once, at most 4,096.
    public init(slotCount: Int) {
        self.slotCount = slotCount
        let raw = UnsafeMutableRawPointer.allocate(byteCount: slotCount * MemoryLayout<Slot>.stride, alignment: 128)
        slots = raw.bindMemory(to: Slot.self, capacity: slotCount)
        for index in 0..<slotCount { (slots + index).initialize(to: Slot()) }
        cells = ScopeCells(slotCount: slotCount)
        chunks = .allocate(capacity: Self.chunkLimit)
        chunks.initialize(repeating: nil, count: Self.chunkLimit)
    }

    deinit {
        for index in 0..<Self.chunkLimit {
            guard let chunk = chunks[index] else { break }
            chunk.deinitialize(count: Self.gatesPerChunk)
            chunk.deallocate()
        }
        chunks.deallocate()
        cells.free()
        slots.deinitialize(count: slotCount)
        UnsafeMutableRawPointer(slots).deallocate()
    }

    /// Makes a scope whose gate refuses `refusals` from the start.
    ///
    /// nil after 16 million scopes, because ids are never reused.
    public func makeScope(refusing refusals: Refusals) -> ScopeID? {
        let number = scopeCount.load(ordering: .relaxed)
        let chunk = Int(truncatingIfNeeded: number) / Self.gatesPerChunk
        guard chunk < Self.chunkLimit else { return nil }
        if chunks[chunk] == nil {
            let gates = UnsafeMutablePointer<Gate>.allocate(capacity: Self.gatesPerChunk)
            for index in 0..<Self.gatesPerChunk { (gates + index).initialize(to: Gate()) }
            chunks[chunk] = gates
        }
        let scope = ScopeID(rawValue: number)
        gate(scope).pointee.refusals.store(refusals.rawValue, ordering: .sequentiallyConsistent)
        scopeCount.store(number + 1, ordering: .releasing)
        return scope
    }

    /// The number of the next scope, for handover.
    public var nextScope: UInt32 { scopeCount.load(ordering: .acquiring) }

    /// Reserves the scopes that another daemon made, all below `next`.
    ///
    /// So no number is reused. Call it before the first `makeScope`. Returns false for an
    /// impossible number.
    public func takeOver(nextScope next: UInt32) -> Bool {
        let last = Int(truncatingIfNeeded: next) / Self.gatesPerChunk
        guard next > 0, last < Self.chunkLimit, scopeCount.load(ordering: .relaxed) == 1 else { return false }
        for chunk in 0...last where chunks[chunk] == nil {
            let gates = UnsafeMutablePointer<Gate>.allocate(capacity: Self.gatesPerChunk)
            for index in 0..<Self.gatesPerChunk { (gates + index).initialize(to: Gate()) }
            chunks[chunk] = gates
        }
        scopeCount.store(next, ordering: .releasing)
        return true
    }

    /// Continues the counts of a scope from another daemon.
    public func takeOver(_ counts: ScopeCounts, of scope: ScopeID) {
        let gate = gate(scope)
        gate.pointee.operations.store(counts.operations, ordering: .relaxed)
        gate.pointee.readBytes.store(counts.readBytes, ordering: .relaxed)
        gate.pointee.writtenBytes.store(counts.writtenBytes, ordering: .relaxed)
    }

    /// The gate of a scope from `makeScope`, valid as long as the coordinator.
    public func gate(_ scope: ScopeID) -> UnsafeMutablePointer<Gate> {
        let number = Int(truncatingIfNeeded: scope.rawValue)
        return chunks[number / Self.gatesPerChunk]! + number % Self.gatesPerChunk
    }

    // MARK: operations

    /// Enters `scope` on the thread that owns `slot`.
    ///
    /// After `.enter`, `.claimed` and `.congested` the thread is inside until `leave(slot:)`. After
    /// any other verdict it is outside.
    @inline(__always)
    public func enter(_ scope: ScopeID, for entry: Entry, slot: Int) -> Verdict {
        let own = slots + slot
        let sequence = own.pointee.sequence.load(ordering: .relaxed) &+ 1
        own.pointee.sequence.store(sequence, ordering: .relaxed)
        // The mark has the kind of operation, not only its scope: a narrowing lets readers stay.
        let mark =
            UInt64(truncatingIfNeeded: sequence & 0x1fff_ffff) << 35 | UInt64(truncatingIfNeeded: entry.rawValue) << 32
            | UInt64(truncatingIfNeeded: scope.rawValue)
        own.pointee.mark.store(mark, ordering: .sequentiallyConsistent)
        let refused = gate(scope).pointee.refusals.load(ordering: .sequentiallyConsistent)
        if refused & entry.refusalMask == 0 {
            count(scope, slot: slot)
            return .enter
        }
        // The mark stays while the operation checks the claims, so a new claim either is seen by it
        // or waits for it.
        if refused & entry.refusalMask & ~Refusals.slowPath.rawValue == 0 {
            count(scope, slot: slot)
            return refused & Refusals.congested.rawValue != 0 ? .congested : .claimed
        }
        own.pointee.mark.store(0, ordering: .releasing)
        return refused & Refusals.read.rawValue != 0 ? .revoked : .readOnly
    }

    /// Enters `scope` even if the gate is closed, until `leave`.
    ///
    /// For operations that release a resource, which always pass and are not counted. Returns
    /// whether the scope is congested.
    @inline(__always)
    public func forceEnter(_ scope: ScopeID, slot: Int) -> Bool {
        let own = slots + slot
        let sequence = own.pointee.sequence.load(ordering: .relaxed) &+ 1
        own.pointee.sequence.store(sequence, ordering: .relaxed)
        let mark =
            UInt64(truncatingIfNeeded: sequence & 0x1fff_ffff) << 35 | UInt64(truncatingIfNeeded: Entry.closing.rawValue) << 32
            | UInt64(truncatingIfNeeded: scope.rawValue)
        own.pointee.mark.store(mark, ordering: .sequentiallyConsistent)
        return gate(scope).pointee.refusals.load(ordering: .relaxed) & Refusals.congested.rawValue != 0
    }

    /// Leaves the scope that the slot is in.
    @inline(__always)
    public func leave(slot: Int) {
        slots[slot].mark.store(0, ordering: .releasing)
    }

    /// Counts a refusal.
    public func countDenial(_ scope: ScopeID) {
        let gate = gate(scope)
        // Counts first and sets the flag afterwards. The reader uses the opposite order.
        gate.pointee.denials.wrappingAdd(1, ordering: .sequentiallyConsistent)
        if !denials.load(ordering: .sequentiallyConsistent) { denials.store(true, ordering: .sequentiallyConsistent) }
    }

    /// Returns the refusals in a scope since the last call, and resets the count.
    public func takeDenials(_ scope: ScopeID) -> UInt64 { gate(scope).pointee.denials.exchange(0, ordering: .sequentiallyConsistent) }

    /// Whether any scope had refusals since the last call.
    public func takeHasDenials() -> Bool { denials.exchange(false, ordering: .sequentiallyConsistent) }

    // MARK: revocations

    /// An operation that was inside a scope when a revoker listed the operations.
    public struct Occupant: Hashable, Sendable {
        public let slot: Int
        let mark: UInt64
        /// The kind of operation for which it entered.
        public var entry: Entry { Entry(rawValue: UInt32(truncatingIfNeeded: mark >> 32) & 7) ?? .read }
    }

    /// Makes the gate refuse `refusals` as well, from now on.
    public func close(_ scope: ScopeID, _ refusals: Refusals) {
        gate(scope).pointee.refusals.bitwiseOr(refusals.rawValue, ordering: .sequentiallyConsistent)
    }

    /// Admits writes again, unless the scope is being revoked.
    public func widen(_ scope: ScopeID) {
        let gate = gate(scope)
        var old = gate.pointee.refusals.load(ordering: .sequentiallyConsistent)
        while old & Refusals.read.rawValue == 0 {
            let (done, seen) = gate.pointee.refusals.compareExchange(
                expected: old, desired: old & Refusals.slowPath.rawValue, ordering: .sequentiallyConsistent)
            if done { return }
            old = seen
        }
    }

    /// Whether a person has yet to allow the scope.
    public func isOffered(_ scope: ScopeID) -> Bool {
        gate(scope).pointee.refusals.load(ordering: .sequentiallyConsistent) & Refusals.offer.rawValue != 0
    }

    /// Opens the gate of an offered scope except for `refusals`. Returns false if it is not offered any more.
    public func admit(_ scope: ScopeID, refusing refusals: Refusals) -> Bool {
        let gate = gate(scope)
        var old = gate.pointee.refusals.load(ordering: .sequentiallyConsistent)
        while old & Refusals.offer.rawValue != 0 {
            let (done, seen) = gate.pointee.refusals.compareExchange(
                expected: old, desired: old & Refusals.slowPath.rawValue | refusals.rawValue, ordering: .sequentiallyConsistent)
            if done { return true }
            old = seen
        }
        return false
    }

    /// Makes an offered scope a refused one: from now on `admit` does nothing.
    public func endOffer(_ scope: ScopeID) {
        gate(scope).pointee.refusals.bitwiseAnd(~Refusals.offer.rawValue, ordering: .sequentiallyConsistent)
    }

    /// Sets whether claims are held in a scope.
    public func setClaimed(_ scope: ScopeID, _ isClaimed: Bool) {
        let gate = gate(scope)
        if isClaimed {
            gate.pointee.refusals.bitwiseOr(Refusals.claimed.rawValue, ordering: .sequentiallyConsistent)
        } else {
            gate.pointee.refusals.bitwiseAnd(~Refusals.claimed.rawValue, ordering: .sequentiallyConsistent)
        }
    }

    /// Sets whether operations that enter a scope must check the worker quota first.
    public func setCongested(_ scope: ScopeID, _ isCongested: Bool) {
        let gate = gate(scope)
        if isCongested {
            gate.pointee.refusals.bitwiseOr(Refusals.congested.rawValue, ordering: .sequentiallyConsistent)
        } else {
            gate.pointee.refusals.bitwiseAnd(~Refusals.congested.rawValue, ordering: .sequentiallyConsistent)
        }
    }

    /// Calls `body` with slot and scope of every operation that is inside now.
    ///
    /// Only the first `count` slots are checked.
    public func forEachInside(upTo count: Int, _ body: (Int, ScopeID) -> Void) {
        for index in 0..<min(count, slotCount) {
            let mark = slots[index].mark.load(ordering: .relaxed)
            if mark != 0 { body(index, ScopeID(rawValue: UInt32(truncatingIfNeeded: mark))) }
        }
    }

    /// The operations inside `scope` now.
    public func occupants(of scope: ScopeID) -> [Occupant] {
        var result: [Occupant] = []
        for index in 0..<slotCount {
            let mark = slots[index].mark.load(ordering: .sequentiallyConsistent)
            if mark != 0, UInt32(truncatingIfNeeded: mark) == scope.rawValue { result.append(Occupant(slot: index, mark: mark)) }
        }
        return result
    }

    /// Whether that operation is still inside.
    public func isInside(_ occupant: Occupant) -> Bool {
        slots[occupant.slot].mark.load(ordering: .sequentiallyConsistent) == occupant.mark
    }
}
