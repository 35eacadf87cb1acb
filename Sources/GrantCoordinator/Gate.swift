import Synchronization

/// Names one scope in one mount. Counted upwards, never used twice.
public struct ScopeID: Hashable, Sendable {
    public let rawValue: UInt32
    public init(rawValue: UInt32) { self.rawValue = rawValue }
}

/// What an operation wants of a scope.
public enum Entry: UInt32, Sendable {
    /// To look: names, attributes, data.
    case read = 1
    /// To change something.
    case write = 2
    /// To write back what the kernel's cache of the mount still holds: the echo of changes that were let in before.
    case cacheWrite = 4
    /// To look, on the way of what must not wait for anybody's claim: the end of a lock, close(2), fsync(2).
    case closing = 3

    /// What in a gate's word stands in its way.
    @inline(__always)
    var refusalMask: UInt32 {
        switch self {
        case .read: Refusals.read.rawValue | Refusals.claimed.rawValue | Refusals.congested.rawValue
        case .write: Refusals.write.rawValue | Refusals.claimed.rawValue | Refusals.congested.rawValue
        case .cacheWrite: Refusals.cacheWrite.rawValue | Refusals.congested.rawValue
        case .closing: Refusals.read.rawValue | Refusals.congested.rawValue
        }
    }

    /// Whether a set of refusals, of a gate or of one file, names it.
    @inline(__always)
    public func isRefused(by refusals: UInt32) -> Bool { refusalMask & refusals != 0 }

    /// Whether it brings a change.
    public var isChange: Bool { self == .write || self == .cacheWrite }
}

/// What a gate refuses: a set of `Entry`s. It only ever grows, but for a widening of access, and for claims and crowds, which come and go.
public struct Refusals: OptionSet, Sendable {
    public let rawValue: UInt32
    public init(rawValue: UInt32) { self.rawValue = rawValue }

    public static let read = Refusals(rawValue: 1)
    public static let write = Refusals(rawValue: 2)
    public static let cacheWrite = Refusals(rawValue: 4)
    /// Claims are held here: who reads or writes has to look at them first.
    public static let claimed = Refusals(rawValue: 8)
    /// So many are inside, here or for one user, that others could be left without a worker: who comes has to look whether there is room.
    public static let congested = Refusals(rawValue: 16)
    /// What refuses nobody by itself.
    static let slowPath: Refusals = [.claimed, .congested]

    /// `open`: nothing is refused.
    public static let none: Refusals = []
    /// A read-only grant whose cached changes are still being written back.
    public static let narrowing: Refusals = [.write]
    /// A read-only grant.
    public static let readOnly: Refusals = [.write, .cacheWrite]
    /// Revoked; the kernel's cached changes are still let through.
    public static let flushing: Refusals = [.read, .write]
    /// Revoked.
    public static let shut: Refusals = [.read, .write, .cacheWrite]
}

/// The gate of one scope. Read by every operation, written by a revocation.
public struct Gate: ~Copyable {
    let refusals = Atomic<UInt32>(0)
    /// Operations refused and not yet reported.
    public let denials = Atomic<UInt64>(0)
    /// Bytes that cache write-back brought while the gate was closing.
    public let flushedBytes = Atomic<UInt64>(0)
    /// What workers have counted that had to count for another scope: `ScopeCells`.
    let operations = Atomic<UInt64>(0)
    let readBytes = Atomic<UInt64>(0)
    let writtenBytes = Atomic<UInt64>(0)

    /// What is refused, whether or not it is crowded.
    public var refused: Refusals { Refusals(rawValue: refusals.load(ordering: .sequentiallyConsistent)).subtracting(.congested) }
}

public enum Verdict {
    /// Whether the thread is inside now.
    @inline(__always)
    public var isInside: Bool { self != .revoked && self != .readOnly }

    case enter
    /// Revoked: EACCES.
    case revoked
    /// A change below a read-only grant: EROFS.
    case readOnly
    /// Inside, and to look at the claims before anything is done.
    case claimed
    /// Inside, and to look whether there is room before anything is done, and then at the claims.
    case congested
}
