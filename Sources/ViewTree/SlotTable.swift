import Glibc
import LinuxFS
import Synchronization

/// Elements in raw memory under ids that are never used twice: `generation << 32 | index`. Finding one takes no lock.
///
/// Whoever finds an element must hold it by other means (a lookup count of the kernel, a pin), because `remove` ends it at once.
/// Locking: `insert`, `remove`, `visit` and `trim` take the lock of a free list for a moment. There may be several lists, so that workers that come and go with
/// each request do not meet at one.
public struct SlotTable<Element: ~Copyable>: ~Copyable, @unchecked Sendable {
    // Safe to share: chunks never move and are never unmapped; a generation is atomic and its element belongs to whoever made the id.
    /// A chunk is the generations of so many cells, each odd while its cell is in use, and then their elements, on pages of their own.
    @usableFromInline static var cellsPerChunk: Int { 4096 }
    @usableFromInline static var chunkLimit: Int { 1 << 16 }
    @usableFromInline static var generationBytes: Int { cellsPerChunk * MemoryLayout<UInt32>.stride }
    private static var elementBytes: Int { cellsPerChunk * MemoryLayout<Element>.stride }
    @usableFromInline let chunks: UnsafeMutablePointer<UnsafeMutableRawPointer?>
    /// A chunk and its indices belong to the list of its number, modulo their count.
    private let lists: UnsafeMutablePointer<Unmanaged<Lock<FreeList>>>
    private let listCount: Int

    /// The first `reserved` indices are never given out, so that small ids (0, FUSE_ROOT_ID) stay free for others. `lists`: how many workers can insert at
    /// once without waiting for each other; each takes chunks of its own.
    public init(reserved: UInt32 = 16, lists count: Int = 1) {
        // calloc, because the kernel gives untouched zero pages: a table of this size costs what is used of it.
        chunks = calloc(Self.chunkLimit, MemoryLayout<UnsafeMutableRawPointer?>.stride)!
            .assumingMemoryBound(to: UnsafeMutableRawPointer?.self)
        listCount = count
        lists = .allocate(capacity: count)
        for number in 0..<count {
            let first = number == 0 ? reserved : UInt32(number * Self.cellsPerChunk)
            (lists + number).initialize(to: .passRetained(Lock(FreeList(next: first))))
        }
    }

    public var count: Int { (0..<listCount).reduce(0) { sum, list in sum + withList(list) { $0.count } } }

    /// One more than the highest index ever used.
    public var indexLimit: UInt32 {
        (0..<listCount).reduce(0) { limit, list in withList(list) { $0.live.isEmpty ? limit : max(limit, $0.next) } }
    }

    /// Puts an element in and returns its id; nil when 268 million are in use or memory is out. `worker`: who inserts, any number.
    public func insert(_ element: consuming Element, by worker: Int = 0) -> UInt64? {
        var element: Element? = element
        let list = worker % listCount
        return withList(list) { free -> UInt64? in
            guard let index = takeIndex(of: list, &free) else { return nil }
            let chunk = chunks[Int(index) / Self.cellsPerChunk]!
            Self.element(index, in: chunk).initialize(to: element.take()!)
            let generation = Self.generation(index, in: chunk).pointee.wrappingAdd(1, ordering: .releasing).newValue
            return UInt64(generation) << 32 | UInt64(index)
        }
    }

    /// The element of `id`, or nil when there is none (any more).
    @inlinable @inline(__always)
    public func find(_ id: UInt64) -> UnsafeMutablePointer<Element>? {
        let index = UInt32(truncatingIfNeeded: id)
        guard let (found, element) = element(at: index), found == id else { return nil }
        return element
    }

    /// The id and element at an index, if the cell is in use now.
    @inlinable @inline(__always)
    public func element(at index: UInt32) -> (id: UInt64, element: UnsafeMutablePointer<Element>)? {
        guard Int(index) < Self.cellsPerChunk * Self.chunkLimit, let chunk = chunks[Int(index) / Self.cellsPerChunk] else { return nil }
        let generation = Self.generation(index, in: chunk).pointee.load(ordering: .acquiring)
        return generation & 1 == 1 ? (UInt64(generation) << 32 | UInt64(index), Self.element(index, in: chunk)) : nil
    }

    /// Runs `body` on the element at an index, if there is one: it cannot end meanwhile, and no other can take its place.
    ///
    /// Locking: the free list's, so `body` only looks and counts.
    func visit(_ index: UInt32, _ body: (UInt64, UnsafeMutablePointer<Element>) -> Void) {
        withList(list(of: index)) { _ in
            if let (id, element) = element(at: index) { body(id, element) }
        }
    }

    /// Ends the element of `id`, which must be in use and held by nobody else.
    public func remove(_ id: UInt64) {
        let index = UInt32(truncatingIfNeeded: id)
        // Taken out under the lock and ended after it: an end can close a descriptor.
        var element: Element?
        withList(list(of: index)) { free in
            let place = Int(index) / Self.cellsPerChunk
            let chunk = chunks[place]!
            let generation = Self.generation(index, in: chunk).pointee.wrappingAdd(1, ordering: .acquiringAndReleasing).newValue
            free.count -= 1
            free.live[place / listCount] -= 1
            // An index whose generations are used up is retired: an id must not come twice.
            if generation < UInt32.max - 2 { free.indices.append(index) }
            element = Self.element(index, in: chunk).move()
        }
        _ = consume element
    }

    /// Gives the memory of chunks without elements back to the kernel; their generations stay, and whoever still looks there by an old id
    /// reads zeros. Returns whether there were any. To be called now and then.
    ///
    /// Locking: the free list's, over one madvise(2) for each such chunk, which waits for nobody.
    public func trim() -> Bool {
        (0..<listCount).reduce(false) { isAny, list in
            withList(list) { free in
                var isAny = isAny
                for own in free.live.indices where free.live[own] == 0 && free.isTouched[own] {
                    madvise(chunks[own * listCount + list]! + Self.generationBytes, Self.elementBytes, MADV_DONTNEED)
                    free.isTouched[own] = false
                    isAny = true
                }
                return isAny
            }
        }
    }

    @usableFromInline @inline(__always)
    static func generation(_ index: UInt32, in chunk: UnsafeMutableRawPointer) -> UnsafeMutablePointer<Atomic<UInt32>> {
        chunk.assumingMemoryBound(to: Atomic<UInt32>.self) + Int(index) % cellsPerChunk
    }

    @usableFromInline @inline(__always)
    static func element(_ index: UInt32, in chunk: UnsafeMutableRawPointer) -> UnsafeMutablePointer<Element> {
        (chunk + generationBytes).assumingMemoryBound(to: Element.self) + Int(index) % cellsPerChunk
    }

    @inline(__always)
    private func withList<Result>(_ list: Int, _ body: (inout FreeList) -> Result) -> Result {
        lists[list]._withUnsafeGuaranteedRef { $0.withLock(body) }
    }

    private func list(of index: UInt32) -> Int { Int(index) / Self.cellsPerChunk % listCount }

    private func takeIndex(of list: Int, _ free: inout FreeList) -> UInt32? {
        let index = free.indices.popLast() ?? free.next
        let place = Int(index) / Self.cellsPerChunk
        guard place < Self.chunkLimit else { return nil }
        let own = place / listCount
        if chunks[place] == nil {
            // Fresh pages are zero: no generation is odd.
            let size = Self.generationBytes + Self.elementBytes
            let made = mmap(nil, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)
            guard let made, made != MAP_FAILED else { return nil }
            chunks[place] = made
            free.live.append(0)
            free.isTouched.append(false)
        }
        if index == free.next {
            free.next += 1
            // The list's next chunk.
            if Int(free.next) % Self.cellsPerChunk == 0 { free.next += UInt32((listCount - 1) * Self.cellsPerChunk) }
        }
        free.count += 1
        free.live[own] += 1
        free.isTouched[own] = true
        return index
    }
}

private struct FreeList {
    var indices: [UInt32] = []
    /// The next index that was never used.
    var next: UInt32
    var count = 0
    /// For each chunk, how many elements are in it, and whether any was since it was last trimmed.
    var live: [Int32] = []
    var isTouched: [Bool] = []
}
