import Glibc
import LinuxFS
import Synchronization

/// Elements in raw memory under ids that are never used twice: `generation << 32 | index`. Finding one takes no lock.
///
/// Whoever finds an element must hold it by other means (a lookup count of the kernel, a pin), because `remove` ends it at once.
/// Locking: `insert`, `remove`, `visit` and `trim` take the free list's lock for a moment.
public final class SlotTable<Element: ~Copyable>: @unchecked Sendable {
    // Safe to share: chunks never move and are never unmapped; a generation is atomic and its element belongs to whoever made the id.
    private struct FreeList {
        var indices: [UInt32] = []
        var used: UInt32
        var count = 0
        /// For each chunk, how many elements are in it, and whether any was since it was last trimmed.
        var live: [Int32] = []
        var isTouched: [Bool] = []
    }

    /// A chunk is the generations of so many cells, each odd while its cell is in use, and then their elements, on pages of their own.
    private static var cellsPerChunk: Int { 4096 }
    private static var chunkLimit: Int { 1 << 16 }
    private static var generationBytes: Int { cellsPerChunk * MemoryLayout<UInt32>.stride }
    private static var elementBytes: Int { cellsPerChunk * MemoryLayout<Element>.stride }
    private let chunks: UnsafeMutablePointer<UnsafeMutableRawPointer?>
    private let free: Lock<FreeList>

    /// The first `reserved` indices are never given out, so that small ids (0, FUSE_ROOT_ID) stay free for others.
    public init(reserved: UInt32 = 16) {
        // calloc, because the kernel gives untouched zero pages: a table of this size costs what is used of it.
        chunks = calloc(Self.chunkLimit, MemoryLayout<UnsafeMutableRawPointer?>.stride)!
            .assumingMemoryBound(to: UnsafeMutableRawPointer?.self)
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
            let chunk = chunks[Int(index) / Self.cellsPerChunk]!
            Self.element(index, in: chunk).initialize(to: element.take()!)
            let generation = Self.generation(index, in: chunk).pointee.wrappingAdd(1, ordering: .releasing).newValue
            return UInt64(generation) << 32 | UInt64(index)
        }
    }

    /// The element of `id`, or nil when there is none (any more).
    @inline(__always)
    public func find(_ id: UInt64) -> UnsafeMutablePointer<Element>? {
        let index = UInt32(truncatingIfNeeded: id)
        guard let (found, element) = element(at: index), found == id else { return nil }
        return element
    }

    /// The id and element at an index, if the cell is in use now.
    @inline(__always)
    public func element(at index: UInt32) -> (id: UInt64, element: UnsafeMutablePointer<Element>)? {
        guard Int(index) < Self.cellsPerChunk * Self.chunkLimit, let chunk = chunks[Int(index) / Self.cellsPerChunk] else { return nil }
        let generation = Self.generation(index, in: chunk).pointee.load(ordering: .acquiring)
        return generation & 1 == 1 ? (UInt64(generation) << 32 | UInt64(index), Self.element(index, in: chunk)) : nil
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
            let place = Int(index) / Self.cellsPerChunk
            let chunk = chunks[place]!
            let generation = Self.generation(index, in: chunk).pointee.wrappingAdd(1, ordering: .acquiringAndReleasing).newValue
            list.count -= 1
            list.live[place] -= 1
            // An index whose generations are used up is retired: an id must not come twice.
            if generation < UInt32.max - 2 { list.indices.append(index) }
            return Self.element(index, in: chunk).move()
        }
        _ = consume element
    }

    /// Gives the memory of chunks without elements back to the kernel; their generations stay, and whoever still looks there by an old id
    /// reads zeros. Returns whether there were any. To be called now and then.
    ///
    /// Locking: the free list's, over one madvise(2) for each such chunk, which waits for nobody.
    public func trim() -> Bool {
        free.withLock { list in
            var isAny = false
            for place in list.live.indices where list.live[place] == 0 && list.isTouched[place] {
                madvise(chunks[place]! + Self.generationBytes, Self.elementBytes, MADV_DONTNEED)
                list.isTouched[place] = false
                isAny = true
            }
            return isAny
        }
    }

    @inline(__always)
    private static func generation(_ index: UInt32, in chunk: UnsafeMutableRawPointer) -> UnsafeMutablePointer<Atomic<UInt32>> {
        chunk.assumingMemoryBound(to: Atomic<UInt32>.self) + Int(index) % cellsPerChunk
    }

    @inline(__always)
    private static func element(_ index: UInt32, in chunk: UnsafeMutableRawPointer) -> UnsafeMutablePointer<Element> {
        (chunk + generationBytes).assumingMemoryBound(to: Element.self) + Int(index) % cellsPerChunk
    }

    private func takeIndex(_ list: inout FreeList) -> UInt32? {
        let index = list.indices.popLast() ?? list.used
        let place = Int(index) / Self.cellsPerChunk
        guard place < Self.chunkLimit else { return nil }
        if chunks[place] == nil {
            // Fresh pages are zero: no generation is odd.
            let size = Self.generationBytes + Self.elementBytes
            let made = mmap(nil, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)
            guard let made, made != MAP_FAILED else { return nil }
            chunks[place] = made
            list.live.append(contentsOf: repeatElement(0, count: place + 1 - list.live.count))
            list.isTouched.append(contentsOf: repeatElement(false, count: place + 1 - list.isTouched.count))
        }
        if index == list.used { list.used += 1 }
        list.count += 1
        list.live[place] += 1
        list.isTouched[place] = true
        return index
    }
}
