/// Allocates the cells of a list's chunks, lowest first.
///
/// So short-lived elements stay together and whole pages become free. Each unused chunk takes 32
/// bytes. The bitmap of taken cells (`taken`) lies in the chunk itself. Locking: belongs to its
/// list's lock.
struct CellAllocator {
    static let perChunk = 4096

    struct Chunk {
        /// An upper bound of all generations when the chunk's generations were last cleared.
        var base: UInt32 = 0
        var live: UInt32 = 0
        /// One bit per word of `taken`, for its 64 cells.
        ///
        /// `roomy`: whether any of them is free. `empty`: whether all are free. `touched`: whether
        /// one was used since the last trim.
        var roomy = UInt64.max
        var empty = UInt64.max
        var touched: UInt64 = 0
    }

    private(set) var chunks: [Chunk] = []
    /// One bit per chunk with a free cell, and the first word that may have one.
    private var withRoom: [UInt64] = []
    private var lowest = 0
    /// The number of elements in all chunks.
    private(set) var live = 0

    mutating func addChunk() {
        if chunks.count % 64 == 0 { withRoom.append(0) }
        withRoom[chunks.count / 64] |= 1 << UInt64(truncatingIfNeeded: chunks.count % 64)
        lowest = min(lowest, chunks.count / 64)
        chunks.append(Chunk())
    }

    /// Reserves the first cells of the first chunk permanently.
    mutating func reserve(_ count: Int, _ taken: UnsafeMutablePointer<UInt64>) {
        for _ in 0..<count { _ = take(0, taken) }
        live -= count
        chunks[0].live &-= UInt32(truncatingIfNeeded: count)
    }

    var firstWithRoom: Int? {
        mutating get {
            while lowest < withRoom.count {
                if withRoom[lowest] != 0 { return lowest * 64 + withRoom[lowest].trailingZeroBitCount }
                lowest += 1
            }
            return nil
        }
    }

    /// One more than the highest chunk with an element.
    var liveEnd: Int { (chunks.lastIndex { $0.live > 0 } ?? -1) + 1 }

    /// Takes the first free cell of a chunk, which must have one.
    mutating func take(_ number: Int, _ taken: UnsafeMutablePointer<UInt64>) -> Int {
        let word = chunks[number].roomy.trailingZeroBitCount
        let bit = (~taken[word]).trailingZeroBitCount
        let mark: UInt64 = 1 << UInt64(truncatingIfNeeded: word)
        taken[word] |= 1 << UInt64(truncatingIfNeeded: bit)
        chunks[number].empty &= ~mark
        chunks[number].touched |= mark
        if taken[word] == .max {
            chunks[number].roomy &= ~mark
            if chunks[number].roomy == 0 { withRoom[number / 64] &= ~(1 << UInt64(truncatingIfNeeded: number % 64)) }
        }
        chunks[number].live += 1
        live += 1
        return word * 64 + bit
    }

    /// Takes a given cell, which is free and was never taken in this table.
    mutating func occupy(_ cell: Int, of number: Int, _ taken: UnsafeMutablePointer<UInt64>, isLive: Bool) {
        let word = cell / 64
        let mark: UInt64 = 1 << UInt64(truncatingIfNeeded: word)
        taken[word] |= 1 << UInt64(truncatingIfNeeded: cell % 64)
        chunks[number].empty &= ~mark
        chunks[number].touched |= mark
        if taken[word] == .max {
            chunks[number].roomy &= ~mark
            if chunks[number].roomy == 0 { withRoom[number / 64] &= ~(1 << UInt64(truncatingIfNeeded: number % 64)) }
        }
        guard isLive else { return }
        chunks[number].live += 1
        live += 1
    }

    /// Makes later generations in the chunk higher than `base`.
    mutating func raise(_ number: Int, to base: UInt32) { chunks[number].base = max(chunks[number].base, base) }

    /// Frees a cell. `retires`: it is never used again.
    mutating func free(_ cell: Int, of number: Int, _ taken: UnsafeMutablePointer<UInt64>, retires: Bool) {
        chunks[number].live -= 1
        live -= 1
        if retires { return }
        let word = cell / 64
        let mark: UInt64 = 1 << UInt64(truncatingIfNeeded: word)
        taken[word] &= ~(1 << UInt64(truncatingIfNeeded: cell % 64))
        chunks[number].roomy |= mark
        if taken[word] == 0 { chunks[number].empty |= mark }
        withRoom[number / 64] |= 1 << UInt64(truncatingIfNeeded: number % 64)
        lowest = min(lowest, number / 64)
    }

    // MARK: returning memory

    func isTrimmable(_ number: Int) -> Bool { chunks[number].touched & chunks[number].empty != 0 }

    /// Whether a chunk's only state is its generations: no cell is used, reserved or retired.
    func canForget(_ number: Int) -> Bool { chunks[number].empty == .max }

    /// Records that a chunk is zeroed. `highest`: its highest generation.
    ///
    /// Returns false if that is too high for all cells to continue from.
    mutating func forget(_ number: Int, highest: UInt32) -> Bool {
        if highest > UInt32.max / 2 { return false }
        chunks[number].base = max(chunks[number].base, highest)
        chunks[number].touched = 0
        return true
    }

    /// Calls `body` with each run of free cells that had elements since the last call.
    mutating func trim(_ number: Int, _ body: (Range<Int>) -> Void) {
        let (empty, touched) = (chunks[number].empty, chunks[number].touched)
        var word = 0
        while word < 64 {
            let start = word
            var isTouched = false
            while word < 64, empty & (1 << UInt64(truncatingIfNeeded: word)) != 0 {
                isTouched = isTouched || touched & (1 << UInt64(truncatingIfNeeded: word)) != 0
                word += 1
            }
            if isTouched { body(start * 64..<word * 64) }
            word += 1
        }
        chunks[number].touched = touched & ~empty
    }
}
