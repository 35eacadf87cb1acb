import CGrantSystem
import Glibc
import GrantSystem
import Testing

@testable import GrantViewTree

@Suite struct ATableOfSlots {
    private struct Large: ~Copyable {
        let number: Int
        private let room: (Int, Int, Int, Int, Int, Int, Int, Int, Int, Int, Int, Int, Int, Int, Int) = (
            0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0
        )
        init(_ number: Int) { self.number = number }
    }

    private typealias Table = SlotTable<Large>

    /// The number of its chunks' pages in memory, without those of other tests.
    private func residentPages(of table: borrowing Table) -> Int {
        let page = Int(getpagesize())
        let bytes = Table.headBytes + Table.cellsPerChunk * MemoryLayout<Large>.stride
        var states = [UInt8](repeating: 0, count: (bytes + page - 1) / page)
        return (0..<Table.chunkLimit).reduce(0) { sum, place in
            guard let chunk = table.chunks[place], mincore(chunk, bytes, &states) == 0 else { return sum }
            return sum + states.filter { $0 & 1 == 1 }.count
        }
    }

    @Test("A slot table returns the memory of half a million removed elements", arguments: [(1, false), (8, false), (1, true)])
    func emptying(lists: Int, isShared: Bool) throws {
        let table = Table(lists: lists, shared: isShared ? try SharedChunks() : nil)
        for _ in 0..<2 {
            let ids = (0..<500_000).compactMap { table.insert(Large($0), by: $0) }
            let full = residentPages(of: table)
            #expect(ids.count == 500_000 && full * Int(getpagesize()) >= 500_000 * 128)
            for id in ids { table.remove(id) }
            // Bound first: #expect cannot inspect a value that cannot be copied.
            let (bytes, again, left, limit) = (table.trim(), table.trim(), residentPages(of: table), table.indexLimit)
            #expect(bytes >= 500_000 * 128 && again == 0)
            // But for the chunk with the reserved indices.
            #expect(left <= 16)
            #expect(limit == 0)
        }
    }

    @Test("A slot table keeps few pages for each remaining element")
    func remaining() {
        let table = Table()
        let ids = (0..<400_000).compactMap { table.insert(Large($0)) }
        let stays = ids.indices.filter { $0 % 4_000 == 1_000 }
        for index in ids.indices where index % 4_000 != 1_000 { table.remove(ids[index]) }
        _ = table.trim()
        let pages = residentPages(of: table)
        // 64 cells of 128 bytes are two pages. The bitmaps of their chunks are five.
        #expect(pages <= stays.count * (2 + 5) + 16)
        let areThere = stays.allSatisfy { table.find(ids[$0])?.pointee.number == $0 }
        #expect(areThere)
    }

    @Test("A shared slot table publishes exactly the IDs in use")
    func shared() throws {
        let shared = try SharedChunks()
        let table = Table(shared: shared)
        func all() throws -> Set<UInt64> {
            let (plain, marked) = try SharedChunks.ids(in: shared.file, withElements: false, of: Large.self)
            #expect(Set(plain).isDisjoint(with: marked))
            return Set(plain).union(marked)
        }
        #expect(try all().isEmpty)
        let ids = (0..<20_000).compactMap { table.insert(Large($0), isMarked: $0 % 5 == 0) }
        #expect(try all() == Set(ids))
        #expect(try SharedChunks.ids(in: shared.file, withElements: false, of: Large.self).marked.count == 4_000)
        let left = Set(ids.filter { $0 % 3 == 0 })
        for id in ids where !left.contains(id) { table.remove(id) }
        #expect(try all() == left)
        // An element in the place of a marked one is not marked.
        for id in left { table.remove(id) }
        let unmarked = (0..<1_000).compactMap { table.insert(Large($0)) }
        #expect(try SharedChunks.ids(in: shared.file, withElements: false, of: Large.self).marked.isEmpty && all() == Set(unmarked))
        for id in unmarked { table.remove(id) }
        _ = table.trim()
        #expect(try all().isEmpty)
        let again = (0..<10_000).compactMap { table.insert(Large($0)) }
        let areNew = Set(again).isDisjoint(with: ids)
        #expect(areNew)
        #expect(try all() == Set(again))
    }

    @Test("A slot table never issues an ID twice")
    func ids() {
        let table = Table(lists: 2)
        var seen: Set<UInt64> = []
        for turn in 1...5 {
            let ids = (0..<20_000).compactMap { table.insert(Large($0), by: $0) }
            seen.formUnion(ids)
            #expect(seen.count == turn * 20_000)
            // Some have come and gone more often than others.
            for _ in 0..<turn {
                guard let id = table.insert(Large(0)) else { continue }
                table.remove(id)
                #expect(seen.insert(id).inserted)
                seen.remove(id)
            }
            for id in ids { table.remove(id) }
            let bytes = table.trim()
            #expect(bytes > 0)
            let areGone = ids.allSatisfy { table.find($0) == nil }
            #expect(areGone)
        }
    }

    @Test("A slot table reuses its lowest cells first")
    func lowest() {
        let table = Table()
        let ids = (0..<200_000).compactMap { table.insert(Large($0)) }
        for id in ids { table.remove(id) }
        let again = (0..<10_000).compactMap { table.insert(Large($0)) }
        let limit = table.indexLimit
        #expect(again.count == 10_000 && limit <= 3 * 4096)
    }

    @Test("A slot table finds exactly its live elements under random changes", arguments: [1, 3])
    func model(lists: Int) {
        let table = Table(lists: lists)
        var random = SystemRandomNumberGenerator()
        var live: [UInt64: Int] = [:]
        var gone: [UInt64] = []
        for turn in 0..<60_000 {
            // In waves, so that chunks fill and empty.
            let grows = turn / 10_000 % 2 == 0
            if UInt8.random(in: 0..<10, using: &random) < (grows ? 8 : 2) || live.isEmpty {
                guard let id = table.insert(Large(turn), by: turn % 7) else { continue }
                #expect(live.updateValue(turn, forKey: id) == nil && UInt32(truncatingIfNeeded: id) >= 16)
            } else if let id = live.keys.first {
                table.remove(id)
                live[id] = nil
                gone.append(id)
            }
            if turn % 5_000 == 4_999 {
                _ = table.trim()
                let areThere = live.allSatisfy { table.find($0.key)?.pointee.number == $0.value }
                let areGone = gone.allSatisfy { table.find($0) == nil }
                let count = table.count
                #expect(areThere && areGone && count == live.count)
            }
        }
    }
}

@Suite struct AKeptHandle {
    @Test("A stored handle is returned unchanged at any length", arguments: [1, 8, 12, 20, 24, 25, 64, 128])
    func lengths(length: Int) throws {
        let kept = StoredHandle()
        var handle = clinux_handle()
        handle.type = Int32.min + Int32(length)
        handle.length = UInt32(length)
        withUnsafeMutableBytes(of: &handle.bytes) { bytes in
            for index in 0..<length { bytes[index] = UInt8(truncatingIfNeeded: index &* 37 &+ 11) }
        }
        let before = kept.copy()
        #expect(before == nil)
        kept.store(handle)
        // Written once: a second one changes nothing.
        kept.store(clinux_handle())
        let found = kept.copy()
        let copy = try #require(found)
        #expect(copy.type == handle.type && copy.length == handle.length)
        let isSame = withUnsafeBytes(of: copy.bytes) { one in withUnsafeBytes(of: handle.bytes) { Array(one) == Array($0) } }
        #expect(isSame)
    }
}
