import Testing

@testable import GrantLocks

/// The locked ranges of a file, compared with a list of bytes.
@Suite struct LockedRanges {
    private static let bytes: Int64 = 24

    /// A description without a file behind it.
    private func description(_ number: UInt64, of file: LockedFile) -> LockDescription {
        LockDescription(number: number, owner: number % 5, handle: 0, file: file, pid: Int32(number), uid: 0, descriptor: -1)
    }

    private func range(_ random: inout some RandomNumberGenerator) -> LockedRange {
        let start = Int64.random(in: 0..<Self.bytes, using: &random)
        let length = Int64.random(in: 0...(Self.bytes - start), using: &random)
        return LockedRange(start: start, length: length, isExclusive: .random(using: &random))
    }

    @Test("Locked ranges agree with a list of bytes under random changes", arguments: 1...40)
    func model(seed: UInt64) {
        var random = SeededGenerator(seed: seed)
        let file = LockedFile(node: 1, scope: ScopeLocks(id: .init(rawValue: 1)))
        let descriptions = (1...9).map { description($0, of: file) }
        // nil: free. The last stands for all that is behind.
        var model = descriptions.map { _ in [Bool?](repeating: nil, count: Int(Self.bytes) + 1) }
        for _ in 0..<300 {
            let which = Int.random(in: 0..<descriptions.count, using: &random)
            let (range, isLocked) = (range(&random), Bool.random(using: &random))
            let before = descriptions[which].ranges.count
            let noted = file.update(range, of: descriptions[which], isLocked: isLocked)
            #expect(noted.more == descriptions[which].ranges.count - before)
            for byte in range.start...min(Self.bytes, range.end) { model[which][Int(byte)] = isLocked ? range.isExclusive : nil }
            file.state.withLock { state in
                let all = state.held.all
                #expect(all.count == descriptions.reduce(0) { $0 + $1.ranges.count })
                #expect(zip(all, all.dropFirst()).allSatisfy { $0.range.start <= $1.range.start && $0.reach <= $1.reach })
                let asked = self.range(&random)
                for owner in UInt64(0)..<5 {
                    let isBlocked = descriptions.indices.contains { which in
                        descriptions[which].owner != owner
                            && (asked.start...min(Self.bytes, asked.end)).contains { byte in
                                model[which][Int(byte)].map { $0 || asked.isExclusive } ?? false
                            }
                    }
                    #expect(state.held.isBlocked(asked, for: owner) == isBlocked)
                }
                let cut = descriptions[which].ranges.isCut(by: asked)
                var copy = descriptions[which].ranges
                let count = copy.count
                _ = copy.set(asked, isLocked: false)
                #expect(cut == (copy.count > count))
                #expect(
                    descriptions[which].ranges.hasExclusive(in: asked)
                        == descriptions[which].ranges.contains { $0.isExclusive && $0.overlaps(asked) })
            }
        }
        for description in descriptions { _ = file.update(.whole, of: description, isLocked: false) }
        #expect(file.state.withLock { $0.held.all.isEmpty })
    }

    @Test("A lock among ten thousand others is found in a few steps")
    func steps() {
        let file = LockedFile(node: 1, scope: ScopeLocks(id: .init(rawValue: 1)))
        for number in UInt64(1)...10_000 {
            let range = LockedRange(start: Int64(number) * 2, length: 1, isExclusive: true)
            _ = file.update(range, of: description(number, of: file), isLocked: true)
        }
        file.state.withLock { state in
            for start in stride(from: Int64(0), to: 20_000, by: 997) {
                let steps = state.held.visit(overlapping: LockedRange(start: start, length: 1, isExclusive: true)) { _ in true }
                #expect(steps <= 2)
            }
        }
    }
}

/// SplitMix64.
struct SeededGenerator: RandomNumberGenerator {
    var state: UInt64
    init(seed: UInt64) { state = seed }
    mutating func next() -> UInt64 {
        state &+= 0x9E37_79B9_7F4A_7C15
        var z = state
        z = (z ^ (z >> 30)) &* 0xBF58_476D_1CE4_E5B9
        z = (z ^ (z >> 27)) &* 0x94D0_49BB_1331_11EB
        return z ^ (z >> 31)
    }
}
