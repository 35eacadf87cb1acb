import Synchronization

/// How many requests of each kind a session has received since it began.
public struct RequestCounts: Sendable, Equatable {
    /// Opcodes are below this; what is not is counted as the last.
    static let kinds = 64
    /// Behind the kinds: bytes.
    static let readBytes = 64
    static let writtenBytes = 65
    /// Counters of a worker, in whole cache lines.
    static let width = 72

    /// By opcode (linux/fuse.h, enum fuse_opcode), without those that never came.
    public let byOpcode: [(opcode: UInt32, count: UInt64)]

    public static func == (one: RequestCounts, other: RequestCounts) -> Bool { one.byOpcode.elementsEqual(other.byOpcode, by: ==) }
}

extension Session {
    /// A snapshot; not of one moment, as workers go on.
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
