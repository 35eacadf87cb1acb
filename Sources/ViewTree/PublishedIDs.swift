import CLinux
import Glibc
import LinuxFS

/// Which ids of a table are in use, and which of them are marked, in memory that another process can look at when this one has died: the heads of the table's chunks, one after the other, in a
/// file without a name.
public final class PublishedIDs: Sendable {
    /// To be given to that process.
    public let file: FileDescriptor

    public init() throws(Errno) { file = try MemoryFile.of([]) }

    /// Puts the head of the chunk `place` where `address` is, which is memory of `bytes` bytes that is mapped already and empty. False when memory is out.
    ///
    /// Locking: the caller's, for one chunk at a time.
    func hold(_ place: Int, at address: UnsafeMutableRawPointer, bytes: Int) -> Bool {
        let (start, needed) = (off_t(clamping: place * bytes), off_t(clamping: (place + 1) * bytes))
        var status = stat()
        guard fstat(file.number, &status) == 0, status.st_size >= needed || ftruncate(file.number, needed) == 0 else { return false }
        return mmap(address, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, file.number, start) != MAP_FAILED
    }

    /// All ids that are in use in the table whose ids `file` holds: those that were inserted without a mark, and those with one. Nobody may use the table any more.
    public static func all(in file: borrowing FileDescriptor) throws(Errno) -> (plain: [UInt64], marked: [UInt64]) {
        let size = Int(clamping: try file.status().st.st_size)
        var (plain, marked): ([UInt64], [UInt64]) = ([], [])
        if size == 0 { return (plain, marked) }
        guard let memory = mmap(nil, size, PROT_READ, MAP_SHARED, file.number, 0), memory != MAP_FAILED else { throw Errno(errno) }
        defer { munmap(memory, size) }
        for place in 0..<size / ChunkHead.bytes {
            let chunk = memory + place * ChunkHead.bytes
            let generations = chunk.assumingMemoryBound(to: UInt32.self)
            for cell in 0..<ChunkHead.cells where generations[cell] & 1 == 1 {
                let id = UInt64(truncatingIfNeeded: generations[cell]) << 32 | UInt64(truncatingIfNeeded: place * ChunkHead.cells + cell)
                let isMarked = ChunkHead.marks(in: chunk)[cell / 8] & 1 << UInt8(truncatingIfNeeded: cell % 8) != 0
                if isMarked { marked.append(id) } else { plain.append(id) }
            }
        }
        return (plain, marked)
    }
}

/// What lies before the elements of a chunk of a `SlotTable`: the generation of each cell, odd while it is in use, and then a bit for each that is taken, and one for each that is
/// marked.
@usableFromInline enum ChunkHead {
    @usableFromInline static var cells: Int { FreeCells.perChunk }
    @usableFromInline static var generationBytes: Int { cells * MemoryLayout<UInt32>.stride }
    @usableFromInline static var bytes: Int { generationBytes + 4096 }

    static func mark(_ cell: Int, in chunk: UnsafeMutableRawPointer) {
        marks(in: chunk)[cell / 8] |= 1 << UInt8(truncatingIfNeeded: cell % 8)
    }

    static func marks(in chunk: UnsafeMutableRawPointer) -> UnsafeMutablePointer<UInt8> {
        (chunk + generationBytes + cells / 8).assumingMemoryBound(to: UInt8.self)
    }
}
