import Synchronization

/// Lets operations into scopes or refuses them, and tells a revoker who is inside.
///
/// The protocol is Dekker's: whoever enters stores its mark and then loads the gate; whoever closes stores into the gate and then
/// looks at the marks. Both are sequentially consistent, so at least one of the two sees the other: no operation is inside
/// unseen once the gate is closed. Entering touches one cache line that belongs to the worker, and reads one that all share.
///
/// Locking: none on the way of an operation. `makeScope` is called by one thread at a time (the owner of the scope table).
public final class Coordinator: @unchecked Sendable {
    // Safe to share: the arrays are allocated once and never move; their elements are atomics.
    public let slotCount: Int
    private let slots: UnsafeMutablePointer<Slot>
    let cells: ScopeCells
    private let chunks: UnsafeMutablePointer<UnsafeMutablePointer<Gate>?>
    private let scopeCount = Atomic<UInt32>(1)
    private let denials = Atomic<Bool>(false)

    private static let gatesPerChunk = 1024
    private static let chunkLimit = 1 << 14

    /// One for each worker, on cache lines of its own.
    struct Slot: ~Copyable {
        let mark = Atomic<UInt64>(0)
        let sequence = Atomic<UInt32>(0)
        // 128 bytes: two lines, because processors fetch lines in pairs.
        private let padding: (UInt64, UInt64, UInt64, UInt64, UInt64, UInt64, UInt64, UInt64) = (0, 0, 0, 0, 0, 0, 0, 0)
        private let padding2: (UInt64, UInt64, UInt64, UInt64, UInt64, UInt64) = (0, 0, 0, 0, 0, 0)
    }

    /// `slotCount`: how many threads can be inside scopes at once, 4,096 at most.
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

    /// A new scope whose gate refuses `refusals` from the start. nil when 16 million scopes were made: ids are never used twice.
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

    /// The number of the next scope. For the daemon that comes next.
    public var nextScope: UInt32 { scopeCount.load(ordering: .acquiring) }

    /// Has scopes that another daemon has made, all below `next`: no number comes twice. Before the first is made here. False for a number that cannot be.
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

    /// Goes on counting what has gone through a scope.
    public func takeOver(_ counts: ScopeCounts, of scope: ScopeID) {
        let gate = gate(scope)
        gate.pointee.operations.store(counts.operations, ordering: .relaxed)
        gate.pointee.readBytes.store(counts.readBytes, ordering: .relaxed)
        gate.pointee.writtenBytes.store(counts.writtenBytes, ordering: .relaxed)
    }

    /// The gate of a scope that `makeScope` gave out; valid as long as the coordinator.
    public func gate(_ scope: ScopeID) -> UnsafeMutablePointer<Gate> {
        let number = Int(truncatingIfNeeded: scope.rawValue)
        return chunks[number / Self.gatesPerChunk]! + number % Self.gatesPerChunk
    }

    // MARK: the way of an operation

    /// Enters `scope` on behalf of the thread that owns `slot`. After `.enter`, `.claimed` and `.congested` the thread is inside until `leave(slot)`;
    /// after anything else it is outside.
    @inline(__always)
    public func enter(_ scope: ScopeID, for entry: Entry, slot: Int) -> Verdict {
        let own = slots + slot
        let sequence = own.pointee.sequence.load(ordering: .relaxed) &+ 1
        own.pointee.sequence.store(sequence, ordering: .relaxed)
        // What it does, besides where: a narrowing leaves readers alone.
        let mark =
            UInt64(truncatingIfNeeded: sequence & 0x1fff_ffff) << 35 | UInt64(truncatingIfNeeded: entry.rawValue) << 32
            | UInt64(truncatingIfNeeded: scope.rawValue)
        own.pointee.mark.store(mark, ordering: .sequentiallyConsistent)
        let refused = gate(scope).pointee.refusals.load(ordering: .sequentiallyConsistent)
        if refused & entry.refusalMask == 0 {
            count(scope, slot: slot)
            return .enter
        }
        // Its mark stands while it looks at the claims, so whoever takes one either is seen by it or waits for it.
        if refused & entry.refusalMask & ~Refusals.slowPath.rawValue == 0 {
            count(scope, slot: slot)
            return refused & Refusals.congested.rawValue != 0 ? .congested : .claimed
        }
        own.pointee.mark.store(0, ordering: .releasing)
        return refused & Refusals.read.rawValue != 0 ? .revoked : .readOnly
    }

    /// Shows the thread that owns `slot` inside `scope`, whatever the gate says, until `leave`: it gives back what was given out, which always passes, and
    /// is not counted. Whether it is crowded there.
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

    /// Leaves whatever scope the slot is in.
    @inline(__always)
    public func leave(slot: Int) {
        slots[slot].mark.store(0, ordering: .releasing)
    }

    /// Counts a refusal.
    public func countDenial(_ scope: ScopeID) {
        let gate = gate(scope)
        // Counted first and said afterwards; whoever takes the counts does it the other way round.
        gate.pointee.denials.wrappingAdd(1, ordering: .sequentiallyConsistent)
        if !denials.load(ordering: .sequentiallyConsistent) { denials.store(true, ordering: .sequentiallyConsistent) }
    }

    /// How many refusals there were in a scope since the last call.
    public func takeDenials(_ scope: ScopeID) -> UInt64 { gate(scope).pointee.denials.exchange(0, ordering: .sequentiallyConsistent) }

    /// Whether there were refusals in any scope since the last call.
    public func takeHasDenials() -> Bool { denials.exchange(false, ordering: .sequentiallyConsistent) }

    // MARK: the way of a revocation

    /// Somebody who was inside a scope when a revoker looked.
    public struct Occupant: Hashable, Sendable {
        public let slot: Int
        let mark: UInt64
        /// What it entered for.
        public var entry: Entry { Entry(rawValue: UInt32(truncatingIfNeeded: mark >> 32) & 7) ?? .read }
    }

    /// Refuses, from now on, what `refusals` names as well.
    public func close(_ scope: ScopeID, _ refusals: Refusals) {
        gate(scope).pointee.refusals.bitwiseOr(refusals.rawValue, ordering: .sequentiallyConsistent)
    }

    /// Lets writes in again, unless the scope is being revoked.
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

    /// Says that claims are held in a scope, or none any more.
    public func setClaimed(_ scope: ScopeID, _ isClaimed: Bool) {
        let gate = gate(scope)
        if isClaimed {
            gate.pointee.refusals.bitwiseOr(Refusals.claimed.rawValue, ordering: .sequentiallyConsistent)
        } else {
            gate.pointee.refusals.bitwiseAnd(~Refusals.claimed.rawValue, ordering: .sequentiallyConsistent)
        }
    }

    /// Sends whoever comes into a scope to look whether there is room first, or no more.
    public func setCongested(_ scope: ScopeID, _ isCongested: Bool) {
        let gate = gate(scope)
        if isCongested {
            gate.pointee.refusals.bitwiseOr(Refusals.congested.rawValue, ordering: .sequentiallyConsistent)
        } else {
            gate.pointee.refusals.bitwiseAnd(~Refusals.congested.rawValue, ordering: .sequentiallyConsistent)
        }
    }

    /// Calls `body` with the slot and the scope of everybody who is inside one now, among the first `count` slots.
    public func forEachInside(upTo count: Int, _ body: (Int, ScopeID) -> Void) {
        for index in 0..<min(count, slotCount) {
            let mark = slots[index].mark.load(ordering: .relaxed)
            if mark != 0 { body(index, ScopeID(rawValue: UInt32(truncatingIfNeeded: mark))) }
        }
    }

    /// Who is inside `scope` now.
    public func occupants(of scope: ScopeID) -> [Occupant] {
        var result: [Occupant] = []
        for index in 0..<slotCount {
            let mark = slots[index].mark.load(ordering: .sequentiallyConsistent)
            if mark != 0, UInt32(truncatingIfNeeded: mark) == scope.rawValue { result.append(Occupant(slot: index, mark: mark)) }
        }
        return result
    }

    /// Whether that very visit still goes on.
    public func isInside(_ occupant: Occupant) -> Bool {
        slots[occupant.slot].mark.load(ordering: .sequentiallyConsistent) == occupant.mark
    }
}
