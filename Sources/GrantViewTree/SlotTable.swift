import Glibc
import GrantSystem
import Synchronization

/// A table of elements in raw memory under ids that are never reused.
///
/// An id is `generation << 32 | index`. Lookups take no lock.
///
/// A lookup does not keep the element alive, and `remove` ends it immediately. So keep a reference
/// of another kind: a lookup count of the kernel, or a pin.
///
/// Locking: `insert`, `remove`, `visit` and `trim` take the lock of one free list for a moment.
/// Several lists avoid contention between workers that insert with each request.
public struct SlotTable<Element: ~Copyable>: ~Copyable, @unchecked Sendable {
    // Sendable: chunks never move and are never unmapped. A generation is atomic, and its element
    // belongs to the thread that made the id.
    /// A chunk is a head for that many cells, followed by their elements.
    ///
    /// The elements begin on a page of their own.
    @usableFromInline static var cellsPerChunk: Int { ChunkHead.cells }
    @usableFromInline static var chunkLimit: Int { 1 << 16 }
    @usableFromInline static var headBytes: Int { ChunkHead.bytes }
    private static var elementBytes: Int { cellsPerChunk * MemoryLayout<Element>.stride }
    @usableFromInline let chunks: UnsafeMutablePointer<UnsafeMutableRawPointer?>
    /// A chunk and its indices belong to the list of its number modulo their count.
    private let lists: UnsafeMutablePointer<Unmanaged<Lock<CellAllocator>>>
    let listCount: Int
    private let reserved: Int
    let shared: SharedChunks?

    /// Makes an empty table.
    ///
    /// - Parameters:
    ///   - reserved: The first indices, up to 64, that are never used. So small ids (0,
    ///     FUSE_ROOT_ID) stay free for others.
    ///   - lists: How many workers can insert concurrently. Each takes chunks of its own.
    ///   - shared: Publishes the ids in use.
    public init(reserved: Int = 16, lists count: Int = 1, shared: SharedChunks? = nil) {
        self.shared = shared
        // calloc: the kernel provides untouched zero pages, so only the used part of the table
        // takes memory.
        chunks = calloc(Self.chunkLimit, MemoryLayout<UnsafeMutableRawPointer?>.stride)!
            .assumingMemoryBound(to: UnsafeMutableRawPointer?.self)
        listCount = count
        self.reserved = reserved
        lists = .allocate(capacity: count)
        for number in 0..<count { (lists + number).initialize(to: .passRetained(Lock(CellAllocator()))) }
    }

    public var count: Int { (0..<listCount).reduce(0) { sum, list in sum + withList(list) { $0.live } } }

    /// No element has this index or a higher one now.
    public var indexLimit: UInt32 {
        UInt32(
            truncatingIfNeeded: (0..<listCount).reduce(0) { limit, list in
                let end = withList(list) { $0.liveEnd }
                return end == 0 ? limit : max(limit, ((end - 1) * listCount + list + 1) * Self.cellsPerChunk)
            })
    }

    /// Inserts an element and returns its id.
    ///
    /// Returns nil if 268 million are in use or there is no memory.
    ///
    /// - Parameters:
    ///   - worker: The inserting worker's number.
    ///   - isMarked: Published with the id.
    public func insert(_ element: consuming Element, by worker: Int = 0, isMarked: Bool = false) -> UInt64? {
        var element: Element? = element
        let list = worker % listCount
        return withList(list) { cells -> UInt64? in
            guard let own = cells.firstWithRoom ?? addChunk(to: list, &cells) else { return nil }
            let place = own * listCount + list
            let chunk = chunks[place]!
            let cell = cells.take(own, Self.taken(in: chunk))
            let index = UInt32(truncatingIfNeeded: place * Self.cellsPerChunk + cell)
            Self.element(index, in: chunk).initialize(to: element.take()!)
            if shared != nil {
                let (marks, bit) = (ChunkHead.marks(in: chunk) + cell / 8, UInt8(1) << UInt8(truncatingIfNeeded: cell % 8))
                marks.pointee = isMarked ? marks.pointee | bit : marks.pointee & ~bit
            }
            let counter = Self.generation(index, in: chunk)
            let generation = max(counter.pointee.load(ordering: .relaxed), cells.chunks[own].base) + 1
            counter.pointee.store(generation, ordering: .releasing)
            return UInt64(truncatingIfNeeded: generation) << 32 | UInt64(truncatingIfNeeded: index)
        }
    }

    /// The element of `id`. Returns nil if it does not exist.
    @inlinable @inline(__always)
    public func find(_ id: UInt64) -> UnsafeMutablePointer<Element>? {
        let index = UInt32(truncatingIfNeeded: id)
        guard let (found, element) = element(at: index), found == id else { return nil }
        return element
    }

    /// The id and element at an index, if the cell is in use.
    @inlinable @inline(__always)
    public func element(at index: UInt32) -> (id: UInt64, element: UnsafeMutablePointer<Element>)? {
        guard Int(truncatingIfNeeded: index) < Self.cellsPerChunk * Self.chunkLimit,
            let chunk = chunks[Int(truncatingIfNeeded: index) / Self.cellsPerChunk]
        else { return nil }
        let generation = Self.generation(index, in: chunk).pointee.load(ordering: .acquiring)
        return generation & 1 == 1
            ? (UInt64(truncatingIfNeeded: generation) << 32 | UInt64(truncatingIfNeeded: index), Self.element(index, in: chunk)) : nil
    }

    /// Runs `body` on the element at an index, if there is one.
    ///
    /// The element cannot end or be replaced meanwhile.
    ///
    /// Locking: the list's, so `body` only reads and counts.
    func visit(_ index: UInt32, _ body: (UInt64, UnsafeMutablePointer<Element>) -> Void) {
        withList(Int(truncatingIfNeeded: index) / Self.cellsPerChunk % listCount) { _ in
            if let (id, element) = element(at: index) { body(id, element) }
        }
    }

    /// Ends the element of `id`, which must be in use and have no other holder.
    public func remove(_ id: UInt64) {
        let index = UInt32(truncatingIfNeeded: id)
        let (place, cell) = Int(truncatingIfNeeded: index).quotientAndRemainder(dividingBy: Self.cellsPerChunk)
        // Moved out under the lock and destroyed after it: that can close a descriptor.
        var element: Element?
        withList(place % listCount) { cells in
            let chunk = chunks[place]!
            let generation = Self.generation(index, in: chunk).pointee.wrappingAdd(1, ordering: .acquiringAndReleasing).newValue
            element = Self.element(index, in: chunk).move()
            // A cell whose generations are used up is retired: an id must not come twice.
            cells.free(cell, of: place / listCount, Self.taken(in: chunk), retires: generation >= UInt32.max - 2)
        }
        _ = consume element
    }

    /// Returns pages without elements to the kernel. Returns the bytes. Call it regularly.
    ///
    /// A late lookup of an old id reads zeros, also as its generation.
    ///
    /// Locking: the lists', each for the madvise(2) of one chunk, which never blocks.
    public func trim() -> Int {
        var bytes = 0
        for list in 0..<listCount {
            for own in 0..<withList(list, { $0.chunks.count }) { bytes += withList(list) { trim(own, of: list, &$0) } }
        }
        return bytes
    }

    // Shared memory is only returned when it is removed from the file.
    private var givesBackHeads: Int32 { shared == nil ? MADV_DONTNEED : MADV_REMOVE }
    private var givesBackElements: Int32 { shared?.hasElements == true ? MADV_REMOVE : MADV_DONTNEED }

    private func trim(_ own: Int, of list: Int, _ cells: inout CellAllocator) -> Int {
        guard cells.isTrimmable(own) else { return 0 }
        let chunk = chunks[own * listCount + list]!
        if cells.canForget(own) {
            let generations = chunk.assumingMemoryBound(to: Atomic<UInt32>.self)
            let highest = (0..<Self.cellsPerChunk).reduce(UInt32(0)) { max($0, generations[$1].load(ordering: .relaxed)) }
            if cells.forget(own, highest: highest) {
                madvise(chunk, Self.headBytes, givesBackHeads)
                if shared?.hasElements == true { ChunkHead.make(in: chunk, base: max(highest, cells.chunks[own].base)) }
                madvise(chunk + Self.headBytes, Self.elementBytes, givesBackElements)
                return Self.headBytes + Self.elementBytes
            }
        }
        var bytes = 0
        let (page, stride) = (UInt(bitPattern: Int(truncatingIfNeeded: getpagesize())), MemoryLayout<Element>.stride)
        let elements = UInt(bitPattern: chunk + Self.headBytes)
        cells.trim(own) { range in
            // Whole pages only: the rest has other elements.
            let start = (elements + UInt(bitPattern: range.lowerBound * stride) + page - 1) / page * page
            let end = (elements + UInt(bitPattern: range.upperBound * stride)) / page * page
            if start >= end { return }
            madvise(UnsafeMutableRawPointer(bitPattern: start), Int(bitPattern: end - start), givesBackElements)
            bytes += Int(bitPattern: end - start)
        }
        return bytes
    }

    @usableFromInline @inline(__always)
    static func generation(_ index: UInt32, in chunk: UnsafeMutableRawPointer) -> UnsafeMutablePointer<Atomic<UInt32>> {
        chunk.assumingMemoryBound(to: Atomic<UInt32>.self) + Int(truncatingIfNeeded: index) % cellsPerChunk
    }

    @usableFromInline @inline(__always)
    static func element(_ index: UInt32, in chunk: UnsafeMutableRawPointer) -> UnsafeMutablePointer<Element> {
        (chunk + headBytes).assumingMemoryBound(to: Element.self) + Int(truncatingIfNeeded: index) % cellsPerChunk
    }

    /// One bit per cell.
    @inline(__always)
    static func taken(in chunk: UnsafeMutableRawPointer) -> UnsafeMutablePointer<UInt64> {
        (chunk + ChunkHead.generationBytes).assumingMemoryBound(to: UInt64.self)
    }

    @inline(__always)
    func withList<Result>(_ list: Int, _ body: (inout CellAllocator) -> Result) -> Result {
        lists[list]._withUnsafeGuaranteedRef { $0.withLock(body) }
    }

    /// Adds a chunk and returns its number within its list. Returns nil if there is no room.
    func addChunk(to list: Int, _ cells: inout CellAllocator) -> Int? {
        let own = cells.chunks.count
        let place = own * listCount + list
        guard place < Self.chunkLimit else { return nil }
        // Fresh pages are zero: no generation is odd, no cell is taken.
        let size = Self.headBytes + Self.elementBytes
        let made = mmap(nil, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)
        guard let made, made != MAP_FAILED else { return nil }
        if let shared {
            guard shared.hold(place, at: made, headBytes: Self.headBytes, elementBytes: Self.elementBytes) else {
                munmap(made, size)
                return nil
            }
            if shared.hasElements { ChunkHead.make(in: made, base: 0) }
        }
        chunks[place] = made
        cells.addChunk()
        if place == 0 { cells.reserve(reserved, Self.taken(in: made)) }
        return own
    }
}
