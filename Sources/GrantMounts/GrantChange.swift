import GrantModel

/// The answer of one mount to a change.
public struct MountConfirmation: Sendable {
    public var mountpoint: [UInt8]
    public var pid: Int32
    /// Whether the change is in effect there.
    public var confirmed: Bool
    public var milliseconds: Double
    public var drained: UInt64 = 0
    public var flushedBytes: UInt64 = 0
    public var invalidatedInodes: UInt64 = 0
    public var pending: UInt64 = 0
    /// Names below the granted directory that the kernel still caches, because a program holds one of the kernel's locks.
    public var unforgotten: [[UInt8]] = []
    /// Processes that hold one of those locks: they get no processor, or list a directory to memory that does not arrive.
    public var processes: [Int32] = []
    /// Why it is not confirmed.
    public var reason: String?
    /// Advice about it, or nil if it confirms by itself as soon as it can.
    public var advice: String?
    /// Whether its daemon has died while the kernel's cache of it was held: no daemon will ever make it drop that. It is confirmed once
    /// no process holds anything.
    public var isDead = false
    /// For a dead mount: the processes that hold something of it, of any grant.
    public var holders: [Holder] = []
    /// The processes that were killed for it.
    public var ended: [Holder] = []
    /// For a dead mount: processes that may hold something and could not be inspected.
    public var unseen: [UnseenProcess] = []
}

/// A changed grant, and the answers of its view's mounts.
public struct GrantChange: Sendable {
    public let grant: Grant
    public let mounts: [MountConfirmation]

    public var isConfirmed: Bool { mounts.allSatisfy(\.confirmed) }
}

extension [GrantChange] {
    public var areConfirmed: Bool { allSatisfy(\.isConfirmed) }
}
