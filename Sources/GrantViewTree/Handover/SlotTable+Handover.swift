import Glibc
import GrantSystem

// Hands ids over to the next daemon. The kernel knows them, so each keeps its meaning, and none is
// ever reused.
extension SlotTable where Element: ~Copyable {
    /// Writes the generations of all cells, used or not.
    func handOverIDs(to state: inout HandoverWriter) {
        state.put(UInt32(truncatingIfNeeded: Self.cellsPerChunk))
        state.put(UInt32(truncatingIfNeeded: listCount))
        let places = (0..<Self.chunkLimit).filter { chunks[$0] != nil }
        state.put(UInt64(truncatingIfNeeded: places.count))
        for place in places {
            state.put(UInt32(truncatingIfNeeded: place))
            state.put(withList(place % listCount) { $0.chunks[place / listCount].base })
            let generations = UnsafeRawBufferPointer(start: chunks[place], count: Self.cellsPerChunk * MemoryLayout<UInt32>.stride)
            // Most chunks of a table that was once large are empty.
            let isUsed = generations.contains { $0 != 0 }
            state.put(flag: isUsed)
            if isUsed { state.put(bytes: generations) }
        }
    }

    /// Restores the ids of an empty table. `takeOver(_:_:)` then restores the elements.
    ///
    /// Throws EPROTO if the other table has another shape.
    func takeOverIDs(from state: inout HandoverReader) throws(Errno) {
        let (cells, lists): (UInt32, UInt32) = (try state.take(), try state.take())
        guard Int(truncatingIfNeeded: cells) == Self.cellsPerChunk, Int(truncatingIfNeeded: lists) == listCount else { throw Errno(EPROTO) }
        for _ in 0..<(try state.takeCount(ofAtLeast: 9)) {
            let (place, base): (UInt32, UInt32) = (try state.take(), try state.take())
            let (list, own) = (Int(truncatingIfNeeded: place) % listCount, Int(truncatingIfNeeded: place) / listCount)
            let generations = try state.takeFlag() ? try state.takeBytes() : []
            guard generations.isEmpty || generations.count == Self.cellsPerChunk * MemoryLayout<UInt32>.stride else { throw Errno(EBADMSG) }
            let isMade = withList(list) { cells -> Bool in
                // Chunks come in ascending order.
                guard cells.chunks.count == own, addChunk(to: list, &cells) == own, let chunk = chunks[Int(truncatingIfNeeded: place)]
                else {
                    return false
                }
                cells.raise(own, to: base)
                if shared?.hasElements == true { ChunkHead.make(in: chunk, base: base) }
                generations.withUnsafeBytes { bytes in
                    for cell in 0..<(bytes.count / MemoryLayout<UInt32>.stride) {
                        let generation = bytes.load(fromByteOffset: cell * MemoryLayout<UInt32>.stride, as: UInt32.self)
                        let index = UInt32(truncatingIfNeeded: cell)
                        // A used cell counts as freed until its element is restored.
                        Self.generation(index, in: chunk).pointee.store(generation + generation % 2, ordering: .relaxed)
                        if generation % 2 == 0, generation >= UInt32.max - 2 {
                            cells.occupy(cell, of: own, Self.taken(in: chunk), isLive: false)
                        }
                    }
                }
                return true
            }
            guard isMade else { throw Errno(ENOMEM) }
        }
    }

    /// Restores an element under its id. Throws EBADMSG for an impossible id.
    func takeOver(_ id: UInt64, _ element: consuming Element, isMarked: Bool = false) throws(Errno) {
        var element: Element? = element
        let (index, generation) = (UInt32(truncatingIfNeeded: id), UInt32(truncatingIfNeeded: id >> 32))
        let (place, cell) = Int(truncatingIfNeeded: index).quotientAndRemainder(dividingBy: Self.cellsPerChunk)
        let isPut = withList(place % listCount) { cells -> Bool in
            guard place < Self.chunkLimit, let chunk = chunks[place], generation % 2 == 1,
                Self.generation(index, in: chunk).pointee.load(ordering: .relaxed) == generation &+ 1
            else { return false }
            cells.occupy(cell, of: place / listCount, Self.taken(in: chunk), isLive: true)
            Self.element(index, in: chunk).initialize(to: element.take()!)
            if isMarked { ChunkHead.mark(cell, in: chunk) }
            Self.generation(index, in: chunk).pointee.store(generation, ordering: .releasing)
            return true
        }
        if !isPut { throw Errno(EBADMSG) }
    }
}
