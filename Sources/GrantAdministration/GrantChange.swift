import GrantModel

/// What one mount said to a change.
public struct MountConfirmation: Sendable {
    public var mountpoint: [UInt8]
    public var pid: Int32
    /// Whether the change is in force there.
    public var confirmed: Bool
    public var milliseconds: Double
    public var drained: UInt64 = 0
    public var flushedBytes: UInt64 = 0
    public var invalidatedInodes: UInt64 = 0
    public var pending: UInt64 = 0
    /// Names below the granted directory of which the kernel has something cached yet, because a program holds a lock of the kernel's.
    public var unforgotten: [[UInt8]] = []
    /// Why it is not confirmed.
    public var reason: String?
    /// Its daemon has died, and what the kernel has cached of it was held: no daemon will ever make it forget. Confirmed is it when nobody does
    /// any more.
    public var isDead = false
    /// Of a dead one: who holds something of it, of this grant or of another, and who was ended because of that.
    public var holders: [Holder] = []
    public var ended: [Holder] = []
    /// Of a dead one: who may hold something of it, and could not be looked at.
    public var unseen: [UnseenProcess] = []
}

/// A grant after a change, and what the mounts of its view said.
public struct GrantChange: Sendable {
    public let grant: Grant
    public let mounts: [MountConfirmation]

    public var isConfirmed: Bool { mounts.allSatisfy(\.confirmed) }
}

extension [GrantChange] {
    public var areConfirmed: Bool { allSatisfy(\.isConfirmed) }
}
