import CGrantSystem
import Glibc
import GrantSystem

/// The chunks of a table in a memory file that other processes can map.
///
/// They contain the ids in use and optionally the elements. They survive this process's death.
/// Chunks lie one after the other, each with its head first. Pointers in them are valid only in the
/// process that wrote them.
public final class SharedChunks: Sendable {
    /// The file to give to that process.
    public let file: FileDescriptor
    /// Whether it contains the elements as well.
    let hasElements: Bool
    private let growing = Lock(())

    public init(withElements hasElements: Bool = false) throws(Errno) {
        self.hasElements = hasElements
        file = try MemoryFile.of([])
    }

    /// Maps the chunk `place` over `address`, with its head and its elements.
    ///
    /// `address` is mapped, empty memory of that size. `headBytes`: the size of the head. Returns
    /// false if there is no memory.
    ///
    /// Locking: takes a lock of rank 3 for a moment, to grow the file.
    func hold(_ place: Int, at address: UnsafeMutableRawPointer, headBytes: Int, elementBytes: Int) -> Bool {
        let bytes = headBytes + (hasElements ? elementBytes : 0)
        let (start, needed) = (off_t(clamping: place * bytes), off_t(clamping: (place + 1) * bytes))
        let isLargeEnough = growing.withLock { _ -> Bool in
            var status = stat()
            return fstat(file.number, &status) == 0 && (status.st_size >= needed || ftruncate(file.number, needed) == 0)
        }
        guard isLargeEnough else { return false }
        return mmap(address, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, file.number, start) != MAP_FAILED
    }

    /// All ids in use in a table of `Element`, with and without a mark.
    ///
    /// `file`: the table, which must not be in use any more.
    public static func ids<Element: ~Copyable>(
        in file: borrowing FileDescriptor, withElements hasElements: Bool, of _: Element.Type
    ) throws(Errno) -> (plain: [UInt64], marked: [UInt64]) {
        var (plain, marked): ([UInt64], [UInt64]) = ([], [])
        let mapped = try MappedChunks<Element>(of: file, withElements: hasElements)
        mapped.forEachID { id, isMarked in
            if isMarked { marked.append(id) } else { plain.append(id) }
        }
        return (plain, marked)
    }
}

/// The chunks of a table that another process left, for reading.
///
/// They must not change any more.
public struct MappedChunks<Element: ~Copyable>: ~Copyable {
    private let memory: UnsafeMutableRawPointer?
    private let bytes: Int
    private let chunkBytes: Int
    private let hasElements: Bool

    public init(of file: borrowing FileDescriptor, withElements hasElements: Bool) throws(Errno) {
        let chunkBytes = ChunkHead.bytes + (hasElements ? ChunkHead.cells * MemoryLayout<Element>.stride : 0)
        // A partial chunk at the end was never used.
        let bytes = Int(clamping: try file.status().st.st_size) / chunkBytes * chunkBytes
        // Private: a mistaken write of the reader affects no other process.
        let mapped = bytes > 0 ? mmap(nil, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, file.number, 0) : nil
        if mapped == MAP_FAILED { throw Errno(errno) }
        (self.chunkBytes, self.bytes, self.hasElements, memory) = (chunkBytes, bytes, hasElements, mapped)
    }

    deinit { if let memory { munmap(memory, bytes) } }

    /// The numbers of the chunks in use. All chunks, if that is not recorded.
    var places: [Int] { (0..<bytes / chunkBytes).filter { !hasElements || ChunkHead.isMade(in: chunk($0)) } }

    func chunk(_ place: Int) -> UnsafeMutableRawPointer { memory! + place * chunkBytes }

    func forEachID(_ body: (UInt64, Bool) -> Void) {
        for place in places {
            let chunk = chunk(place)
            let generations = chunk.assumingMemoryBound(to: UInt32.self)
            for cell in 0..<ChunkHead.cells where generations[cell] & 1 == 1 {
                let id = UInt64(truncatingIfNeeded: generations[cell]) << 32 | UInt64(truncatingIfNeeded: place * ChunkHead.cells + cell)
                body(id, ChunkHead.marks(in: chunk)[cell / 8] & 1 << UInt8(truncatingIfNeeded: cell % 8) != 0)
            }
        }
    }

    /// Calls `body` with each element, in place and not owned.
    ///
    /// Do not follow pointers in it.
    public func forEach<Failure: Error>(_ body: (UInt64, UnsafeMutablePointer<Element>) throws(Failure) -> Void) throws(Failure) {
        for place in places {
            let chunk = chunk(place)
            let generations = chunk.assumingMemoryBound(to: UInt32.self)
            let elements = (chunk + ChunkHead.bytes).assumingMemoryBound(to: Element.self)
            for cell in 0..<ChunkHead.cells where generations[cell] & 1 == 1 {
                let id = UInt64(truncatingIfNeeded: generations[cell]) << 32 | UInt64(truncatingIfNeeded: place * ChunkHead.cells + cell)
                try body(id, elements + cell)
            }
        }
    }
}

/// The head of a `SlotTable` chunk.
///
/// It contains the generation of each cell (odd while used), one bit per taken cell, one bit per
/// marked cell, and the highest generation when they were last cleared.
@usableFromInline enum ChunkHead {
    @usableFromInline static var cells: Int { CellAllocator.perChunk }
    @usableFromInline static var generationBytes: Int { cells * MemoryLayout<UInt32>.stride }
    @usableFromInline static var bytes: Int { generationBytes + 4096 }

    static func mark(_ cell: Int, in chunk: UnsafeMutableRawPointer) {
        marks(in: chunk)[cell / 8] |= 1 << UInt8(truncatingIfNeeded: cell % 8)
    }

    static func marks(in chunk: UnsafeMutableRawPointer) -> UnsafeMutablePointer<UInt8> {
        (chunk + generationBytes + cells / 8).assumingMemoryBound(to: UInt8.self)
    }

    /// `highest + 1`, and 0 in an unused chunk.
    ///
    /// Written only if there are elements as well, because it takes a page that would otherwise be
    /// returned to the kernel.
    private static func base(in chunk: UnsafeMutableRawPointer) -> UnsafeMutablePointer<UInt64> {
        (chunk + generationBytes + cells / 8 * 2).assumingMemoryBound(to: UInt64.self)
    }

    static func make(in chunk: UnsafeMutableRawPointer, base highest: UInt32) {
        base(in: chunk).pointee = UInt64(truncatingIfNeeded: highest) + 1
    }

    static func isMade(in chunk: UnsafeMutableRawPointer) -> Bool { base(in: chunk).pointee != 0 }

    static func highest(in chunk: UnsafeMutableRawPointer) -> UInt32 { UInt32(truncatingIfNeeded: max(1, base(in: chunk).pointee) - 1) }
}
