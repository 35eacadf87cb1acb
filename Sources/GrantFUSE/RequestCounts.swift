import Synchronization

/// Requests received by a session so far, by kind.
public struct RequestCounts: Sendable, Equatable {
    /// The number of opcodes counted. Larger ones count as the last.
    static let kinds = 64
    /// Counters behind those of the opcodes: bytes.
    static let readBytes = 64
    static let writtenBytes = 65
    /// The counters of a worker, in whole cache lines.
    static let width = 72

    /// By opcode (linux/fuse.h, enum fuse_opcode). Contains only opcodes that arrived.
    public let byOpcode: [(opcode: UInt32, count: UInt64)]

    public static func == (one: RequestCounts, other: RequestCounts) -> Bool { one.byOpcode.elementsEqual(other.byOpcode, by: ==) }
}

extension Session {
    /// The current counts. Not a consistent snapshot, because workers continue.
    public var requestCounts: RequestCounts {
        var sums = [UInt64](repeating: 0, count: RequestCounts.kinds)
        for slot in 0..<workerLimit {
            let worker = workers + slot
            for kind in 0..<RequestCounts.kinds { sums[kind] &+= worker.pointee.counts[kind].load(ordering: .relaxed) }
        }
        return RequestCounts(
            byOpcode: sums.enumerated().filter { $0.element > 0 }.map { (UInt32(truncatingIfNeeded: $0.offset), $0.element) })
    }
}
