import Glibc
import LinuxFS
import Synchronization

/// Elements in raw memory under ids that are never used twice: `generation << 32 | index`. Finding one takes no lock.
///
/// Whoever finds an element must hold it by other means (a lookup count of the kernel, a pin), because `remove` ends it at once.
/// Locking: `insert` and `remove` take the free list's lock for a moment.
public final class SlotTable<Element: ~Copyable>: @unchecked Sendable {
    // Safe to share: chunks never move; a cell's generation is atomic and its element belongs to whoever made the id.
    struct Cell: ~Copyable {
        /// Odd while the cell is in use. Part of the id.
        let generation = Atomic<UInt32>(0)
        /// Room for one element, initialized while the generation is odd.
        let element: UnsafeMutablePointer<Element>
    }

    private struct FreeList {
        var indices: [UInt32] = []
        var used: UInt32
        var count = 0
    }

    private static var cellsPerChunk: Int { 4096 }
    private static var chunkLimit: Int { 1 << 16 }
    private let chunks: UnsafeMutablePointer<UnsafeMutablePointer<Cell>?>
    private let free: Lock<FreeList>

    /// The first `reserved` indices are never given out, so that small ids (0, FUSE_ROOT_ID) stay free for others.
    public init(reserved: UInt32 = 16) {
        // calloc, because the kernel gives untouched zero pages: a table of this size costs what is used of it.
        chunks = calloc(Self.chunkLimit, MemoryLayout<UnsafeMutablePointer<Cell>?>.stride)!
            .assumingMemoryBound(to: UnsafeMutablePointer<Cell>?.self)
        free = Lock(FreeList(used: reserved))
    }

    public var count: Int { free.withLock { $0.count } }

    /// One more than the highest index ever used.
    public var indexLimit: UInt32 { free.withLock { $0.used } }

    /// Puts an element in and returns its id; nil when 268 million are in use or memory is out.
    public func insert(_ element: consuming Element) -> UInt64? {
        var element: Element? = element
        return free.withLock { list -> UInt64? in
            guard let index = takeIndex(&list) else { return nil }
            let cell = cell(index)
            cell.pointee.element.initialize(to: element.take()!)
            let generation = cell.pointee.generation.wrappingAdd(1, ordering: .releasing).newValue
            return UInt64(generation) << 32 | UInt64(index)
        }
    }

    /// The element of `id`, or nil when there is none (any more).
    @inline(__always)
    public func find(_ id: UInt64) -> UnsafeMutablePointer<Element>? {
        let index = Int(UInt32(truncatingIfNeeded: id))
        guard index < Self.cellsPerChunk * Self.chunkLimit, let chunk = chunks[index / Self.cellsPerChunk] else { return nil }
        let cell = chunk + index % Self.cellsPerChunk
        let generation = cell.pointee.generation.load(ordering: .acquiring)
        guard generation & 1 == 1, UInt64(generation) == id >> 32 else { return nil }
        return cell.pointee.element
    }

    /// The id and element at an index, if the cell is in use now.
    public func element(at index: UInt32) -> (id: UInt64, element: UnsafeMutablePointer<Element>)? {
        guard let chunk = chunks[Int(index) / Self.cellsPerChunk] else { return nil }
        let cell = chunk + Int(index) % Self.cellsPerChunk
        let generation = cell.pointee.generation.load(ordering: .acquiring)
        return generation & 1 == 1 ? (UInt64(generation) << 32 | UInt64(index), cell.pointee.element) : nil
    }

    /// Runs `body` on the element at an index, if there is one: it cannot end meanwhile, and no other can take its place.
    ///
    /// Locking: the free list's, so `body` only looks and counts.
    func visit(_ index: UInt32, _ body: (UInt64, UnsafeMutablePointer<Element>) -> Void) {
        free.withLock { _ in
            if let (id, element) = element(at: index) { body(id, element) }
        }
    }

    /// Ends the element of `id`, which must be in use and held by nobody else.
    public func remove(_ id: UInt64) {
        let index = UInt32(truncatingIfNeeded: id)
        // Taken out under the lock and ended after it: an end can close a descriptor.
        let element = free.withLock { list -> Element in
            let cell = cell(index)
            let generation = cell.pointee.generation.wrappingAdd(1, ordering: .acquiringAndReleasing).newValue
            list.count -= 1
            // An index whose generations are used up is retired: an id must not come twice.
            if generation < UInt32.max - 2 { list.indices.append(index) }
            return cell.pointee.element.move()
        }
        _ = consume element
    }

    private func cell(_ index: UInt32) -> UnsafeMutablePointer<Cell> {
        chunks[Int(index) / Self.cellsPerChunk]! + Int(index) % Self.cellsPerChunk
    }

    private func takeIndex(_ list: inout FreeList) -> UInt32? {
        if let index = list.indices.popLast() {
            list.count += 1
            return index
        }
        let index = list.used
        guard Int(index) < Self.cellsPerChunk * Self.chunkLimit else { return nil }
        let chunk = Int(index) / Self.cellsPerChunk
        if chunks[chunk] == nil {
            let cells = UnsafeMutablePointer<Cell>.allocate(capacity: Self.cellsPerChunk)
            let elements = UnsafeMutablePointer<Element>.allocate(capacity: Self.cellsPerChunk)
            for place in 0..<Self.cellsPerChunk { (cells + place).initialize(to: Cell(element: elements + place)) }
            chunks[chunk] = cells
        }
        list.used += 1
        list.count += 1
        return index
    }
}
