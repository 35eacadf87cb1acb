import Synchronization

/// Identifies a scope of one mount. Ascending, never reused.
public struct ScopeID: Hashable, Sendable {
    public let rawValue: UInt32
    public init(rawValue: UInt32) { self.rawValue = rawValue }
}

/// The kind of an operation in a scope.
public enum Entry: UInt32, Sendable {
    /// Reads names, attributes or data.
    case read = 1
    /// Changes names, attributes or data.
    case write = 2
    /// Write-back of the kernel's cache: changes that were admitted before.
    case cacheWrite = 4
    /// Reads as part of an operation that must not wait for a claim.
    ///
    /// Such operations are unlocking, close(2) and fsync(2).
    case closing = 3

    /// The refusals that stop or divert this entry.
    @inline(__always)
    var refusalMask: UInt32 {
        switch self {
        case .read: Refusals.read.rawValue | Refusals.claimed.rawValue | Refusals.congested.rawValue
        case .write: Refusals.write.rawValue | Refusals.claimed.rawValue | Refusals.congested.rawValue
        case .cacheWrite: Refusals.cacheWrite.rawValue | Refusals.congested.rawValue
        case .closing: Refusals.read.rawValue | Refusals.congested.rawValue
        }
    }

    /// Whether a set of refusals, of a gate or of one file, contains it.
    @inline(__always)
    public func isRefused(by refusals: UInt32) -> Bool { refusalMask & refusals != 0 }

    /// Whether it changes anything.
    public var isChange: Bool { self == .write || self == .cacheWrite }
}

/// The entries that a gate refuses.
///
/// The set only grows, except for a widening of access, for an offer that is allowed, and for claims
/// and congestion, which begin and end.
public struct Refusals: OptionSet, Sendable {
    public let rawValue: UInt32
    public init(rawValue: UInt32) { self.rawValue = rawValue }

    public static let read = Refusals(rawValue: 1)
    public static let write = Refusals(rawValue: 2)
    public static let cacheWrite = Refusals(rawValue: 4)
    /// Claims are held here: readers and writers must check them first.
    public static let claimed = Refusals(rawValue: 8)
    /// Operations must check the worker quota first.
    ///
    /// There are so many of them inside, here or for one user, that others could be left without a
    /// worker.
    public static let congested = Refusals(rawValue: 16)
    /// Refused because a person has yet to allow it (`offered`), and not because it was revoked.
    static let offer = Refusals(rawValue: 32)
    /// Bits that divert operations to a slow path and refuse none.
    static let slowPath: Refusals = [.claimed, .congested]

    /// Refuses nothing.
    public static let none: Refusals = []
    /// Read-only, while earlier cached changes are still written back.
    public static let narrowing: Refusals = [.write]
    /// Read-only.
    public static let readOnly: Refusals = [.write, .cacheWrite]
    /// Revoked, while earlier cached changes are still written back.
    public static let flushing: Refusals = [.read, .write]
    /// A person has yet to allow it.
    public static let offered: Refusals = [.shut, .offer]
    /// Revoked.
    public static let shut: Refusals = [.read, .write, .cacheWrite]
}

/// The gate of one scope. Every operation reads it, and a revocation writes it.
public struct Gate: ~Copyable {
    let refusals = Atomic<UInt32>(0)
    /// Refusals that were not reported yet.
    public let denials = Atomic<UInt64>(0)
    /// Bytes written back from the kernel's cache while the gate was closing.
    public let flushedBytes = Atomic<UInt64>(0)
    /// Counts of workers whose cell now counts for another scope: `ScopeCells`.
    let operations = Atomic<UInt64>(0)
    let readBytes = Atomic<UInt64>(0)
    let writtenBytes = Atomic<UInt64>(0)

    /// The refusals, without `congested`.
    public var refused: Refusals { Refusals(rawValue: refusals.load(ordering: .sequentiallyConsistent)).subtracting(.congested) }
}

public enum Verdict {
    /// Whether the thread is inside the scope now.
    @inline(__always)
    public var isInside: Bool { self != .revoked && self != .readOnly }

    case enter
    /// Revoked: EACCES.
    case revoked
    /// A change below a read-only grant: EROFS.
    case readOnly
    /// Inside, and must check the claims first.
    case claimed
    /// Inside, and must check the quota first, and then the claims.
    case congested
}
