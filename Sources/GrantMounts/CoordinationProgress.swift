import GrantControl

/// The progress of a claim that waits, a withdrawal, or a snapshot.
public struct CoordinationProgress: Sendable, Equatable {
    /// The current stage, for people. The words for programs are in docs/semantics.md.
    public var stage: String
    public var done: UInt64
    /// It is nil if unknown.
    public var total: UInt64?
    /// The processes that block the claim.
    public var pids: [Int32]
    /// For a snapshot: the number of files made.
    public var files: UInt64?
    /// Whether `done` and `total` are bytes.
    public var isBytes: Bool

    public init(
        stage: String, done: UInt64, total: UInt64?, pids: [Int32] = [], files: UInt64? = nil, isBytes: Bool = false
    ) {
        (self.stage, self.done, self.total, self.pids, self.files, self.isBytes) = (stage, done, total, pids, files, isBytes)
    }

    /// Combines the progress of withdrawals in several mounts into that of the slowest. The result
    /// is nil if none is under way.
    init?(_ states: [GrantProgress]) {
        guard let stage = GrantProgress.Stage.allCases.first(where: { stage in states.contains { $0.stage == stage } }) else { return nil }
        let own = states.filter { $0.stage == stage }
        let totals = own.compactMap(\.total)
        self.init(
            stage: stage.rawValue, done: own.reduce(0) { $0 &+ $1.done },
            total: totals.count == own.count ? totals.reduce(0) { $0 &+ $1 } : nil, isBytes: stage == .flushing)
    }
}
