import Glibc
import Synchronization

/// Counts of the operations and bytes of a scope since it was made.
public struct ScopeCounts: Sendable, Equatable {
    /// Operations admitted. An operation that waits for a claim counts on arrival and when served.
    public var operations: UInt64 = 0
    /// Bytes of files, read and written for programs and for the kernel's cache.
    public var readBytes: UInt64 = 0
    public var writtenBytes: UInt64 = 0

    public init(operations: UInt64 = 0, readBytes: UInt64 = 0, writtenBytes: UInt64 = 0) {
        (self.operations, self.readBytes, self.writtenBytes) = (operations, readBytes, writtenBytes)
    }
}

/// Counters per worker and scope, so that counting only adds in the worker's own memory.
///
/// A worker has `width` cells, one per scope number modulo `width`. When a cell goes to another
/// scope, its counts are added to the gate of the old one. So no worker needs room for every scope,
/// and with fewer than `width` live grants cells seldom change owner.
struct ScopeCells {
    static let width = 32

    /// 32 bytes, written by one worker.
    struct Cell: ~Copyable {
        /// `changes << 32 | scope`. Scope 0 does not exist, and marks a cell that changes owner.
        let owner = Atomic<UInt64>(0)
        let operations = Atomic<UInt64>(0)
        let readBytes = Atomic<UInt64>(0)
        let writtenBytes = Atomic<UInt64>(0)
    }

    private let cells: UnsafeMutablePointer<Cell>
    private let size: Int

    /// Uses mmap: the kernel gives zeroed pages on first touch.
    ///
    /// No two workers share a cache line. An atomic counter begins as zero bytes. `free` unmaps
    /// them.
    init(slotCount: Int) {
        size = slotCount * Self.width * MemoryLayout<Cell>.stride
        let pages = mmap(nil, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
        precondition(pages != MAP_FAILED, "no memory")
        cells = pages!.bindMemory(to: Cell.self, capacity: slotCount * Self.width)
    }

    func free() { munmap(cells, size) }

    @inline(__always)
    func cell(_ slot: Int, _ scope: ScopeID) -> UnsafeMutablePointer<Cell> {
        cells + (slot &* Self.width &+ Int(truncatingIfNeeded: scope.rawValue) & (Self.width - 1))
    }
}

extension ScopeCells.Cell {
    @inline(__always)
    func isOf(_ scope: ScopeID) -> Bool { UInt32(truncatingIfNeeded: owner.load(ordering: .relaxed)) == scope.rawValue }

    /// Adds to a counter that has one writer.
    ///
    /// So no atomic read-modify-write is needed.
    @inline(__always)
    static func add(_ count: UInt64, to counter: borrowing Atomic<UInt64>) {
        counter.store(counter.load(ordering: .relaxed) &+ count, ordering: .relaxed)
    }

    /// The counts for `scope`, from any thread. Reads again when the cell changes owner meanwhile.
    func counts(of scope: ScopeID) -> ScopeCounts {
        while true {
            let before = owner.load(ordering: .acquiring)
            guard UInt32(truncatingIfNeeded: before) == scope.rawValue else { return ScopeCounts() }
            let counts = ScopeCounts(
                operations: operations.load(ordering: .acquiring), readBytes: readBytes.load(ordering: .acquiring),
                writtenBytes: writtenBytes.load(ordering: .acquiring))
            if owner.load(ordering: .relaxed) == before { return counts }
        }
    }
}

extension Coordinator {
    /// Counts an admitted operation, on the thread that owns `slot`.
    @inline(__always)
    func count(_ scope: ScopeID, slot: Int) {
        let cell = cells.cell(slot, scope)
        if !cell.pointee.isOf(scope) { reassign(cell, to: scope) }
        ScopeCells.Cell.add(1, to: cell.pointee.operations)
    }

    /// Counts bytes that were read or written in `scope`, on the thread that owns `slot`.
    @inline(__always)
    public func count(read: Int = 0, written: Int = 0, in scope: ScopeID, slot: Int) {
        let cell = cells.cell(slot, scope)
        if !cell.pointee.isOf(scope) { reassign(cell, to: scope) }
        if read > 0 { ScopeCells.Cell.add(UInt64(clamping: read), to: cell.pointee.readBytes) }
        if written > 0 { ScopeCells.Cell.add(UInt64(clamping: written), to: cell.pointee.writtenBytes) }
    }

    /// Adds a cell's counts to its scope's gate, and gives it to another scope.
    @inline(never)
    private func reassign(_ cell: UnsafeMutablePointer<ScopeCells.Cell>, to scope: ScopeID) {
        let owner = cell.pointee.owner.load(ordering: .relaxed)
        let changes = (owner >> 32) &+ 1
        cell.pointee.owner.store(changes << 32, ordering: .relaxed)
        let old = ScopeID(rawValue: UInt32(truncatingIfNeeded: owner))
        if old.rawValue != 0 {
            let gate = gate(old)
            gate.pointee.operations.wrappingAdd(cell.pointee.operations.load(ordering: .relaxed), ordering: .relaxed)
            gate.pointee.readBytes.wrappingAdd(cell.pointee.readBytes.load(ordering: .relaxed), ordering: .relaxed)
            gate.pointee.writtenBytes.wrappingAdd(cell.pointee.writtenBytes.load(ordering: .relaxed), ordering: .relaxed)
        }
        // A reader that sees one of these zeros also sees the new owner.
        cell.pointee.operations.store(0, ordering: .releasing)
        cell.pointee.readBytes.store(0, ordering: .releasing)
        cell.pointee.writtenBytes.store(0, ordering: .releasing)
        cell.pointee.owner.store(changes << 32 | UInt64(truncatingIfNeeded: scope.rawValue), ordering: .releasing)
    }

    /// The counts of a scope.
    ///
    /// Not a consistent snapshot: a result may be slightly less than an earlier one.
    public func counts(of scope: ScopeID) -> ScopeCounts {
        let gate = gate(scope)
        var sum = ScopeCounts(
            operations: gate.pointee.operations.load(ordering: .relaxed), readBytes: gate.pointee.readBytes.load(ordering: .relaxed),
            writtenBytes: gate.pointee.writtenBytes.load(ordering: .relaxed))
        for slot in 0..<slotCount {
            let counts = cells.cell(slot, scope).pointee.counts(of: scope)
            sum.operations &+= counts.operations
            sum.readBytes &+= counts.readBytes
            sum.writtenBytes &+= counts.writtenBytes
        }
        return sum
    }
}
