import GrantControl

/// How far long work has come: what comes before a claim is granted or a grant withdrawn, or a snapshot.
public struct CoordinationProgress: Sendable, Equatable {
    /// What is done just now, for people; programs know the words of docs/semantics.md.
    public var stage: String
    public var done: UInt64
    /// nil where it is not known.
    public var total: UInt64?
    /// Who is waited for.
    public var pids: [Int32]
    /// Of a snapshot: how many files were made.
    public var files: UInt64?
    /// Whether `done` and `total` are bytes.
    public var isBytes: Bool

    public init(
        stage: String, done: UInt64, total: UInt64?, pids: [Int32] = [], files: UInt64? = nil, isBytes: Bool = false
    ) {
        (self.stage, self.done, self.total, self.pids, self.files, self.isBytes) = (stage, done, total, pids, files, isBytes)
    }

    /// Of withdrawals in several mounts: where the last of them are. nil when none is under way.
    init?(_ states: [GrantProgress]) {
        guard let stage = GrantProgress.Stage.allCases.first(where: { stage in states.contains { $0.stage == stage } }) else { return nil }
        let own = states.filter { $0.stage == stage }
        let totals = own.compactMap(\.total)
        self.init(
            stage: stage.rawValue, done: own.reduce(0) { $0 &+ $1.done },
            total: totals.count == own.count ? totals.reduce(0) { $0 &+ $1 } : nil, isBytes: stage == .flushing)
    }
}
