/// Which cells of a list's chunks are free. The lowest ones are taken first, so that what comes and goes stays together, and whole pages become free.
///
/// Kept small for what is not in use: 32 bytes a chunk. Which of a chunk's cells are taken (`taken`, a bit each) is kept in the chunk itself.
/// Locking: belongs to its list's lock.
struct CellAllocator {
    static let perChunk = 4096

    struct Chunk {
        /// No cell of it has had a higher generation when its generations were last forgotten.
        var base: UInt32 = 0
        var live: UInt32 = 0
        /// A bit for each word of `taken`: whether one of its 64 cells is free; whether all are; whether one was in use since the last trim.
        var roomy = UInt64.max
        var empty = UInt64.max
        var touched: UInt64 = 0
    }

    private(set) var chunks: [Chunk] = []
    /// A bit for each chunk that has a free cell, and the first word of them that may have one.
    private var withRoom: [UInt64] = []
    private var lowest = 0
    /// Elements in all of them.
    private(set) var live = 0

    mutating func addChunk() {
        if chunks.count % 64 == 0 { withRoom.append(0) }
        withRoom[chunks.count / 64] |= 1 << UInt64(truncatingIfNeeded: chunks.count % 64)
        lowest = min(lowest, chunks.count / 64)
        chunks.append(Chunk())
    }

    /// Takes the first cells of the first chunk out of use.
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

    /// One more than the highest chunk in which an element is.
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

    /// Takes one cell, which is free and was not taken before in this table.
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

    /// No element of the chunk gets a generation that is not higher.
    mutating func raise(_ number: Int, to base: UInt32) { chunks[number].base = max(chunks[number].base, base) }

    /// A cell's element has ended. `retires`: it is not to be used again.
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

    // MARK: giving memory back

    func isTrimmable(_ number: Int) -> Bool { chunks[number].touched & chunks[number].empty != 0 }

    /// Whether nothing of a chunk has to be remembered but its generations: no cell of it is in use, reserved or retired.
    func canForget(_ number: Int) -> Bool { chunks[number].empty == .max }

    /// Notes that a chunk is all zeros from now on; `highest`: of its generations. False when they are too high for all its cells to begin there.
    mutating func forget(_ number: Int, highest: UInt32) -> Bool {
        if highest > UInt32.max / 2 { return false }
        chunks[number].base = max(chunks[number].base, highest)
        chunks[number].touched = 0
        return true
    }

    /// Calls `body` with each run of free cells in which there were elements since the last call.
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
