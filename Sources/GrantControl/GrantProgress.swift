import GrantModel

/// The progress of a grant's withdrawal in one mount.
public struct GrantProgress: Sendable, Equatable {
    /// In the order in which they come.
    public enum Stage: String, Sendable, CaseIterable {
        /// Running operations end.
        case draining
        /// Earlier writes are written back. Counted in bytes.
        case flushing
        /// The kernel's caches are invalidated. Counted in inodes.
        case forgetting
    }

    public var grant: GrantID
    public var stage: Stage
    public var done: UInt64
    /// It is nil if it is not known.
    public var total: UInt64?

    public init(grant: GrantID, stage: Stage, done: UInt64, total: UInt64?) {
        (self.grant, self.stage, self.done, self.total) = (grant, stage, done, total)
    }
}

extension GrantProgress: WireRecord {
    package static let fields = WireFields(GrantProgress.init(grant:stage:done:total:)) { ($0.grant, $0.stage, $0.done, $0.total) }
}

extension GrantProgress.Stage: WireValue {}
