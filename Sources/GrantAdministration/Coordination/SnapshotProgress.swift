import GrantSystem

/// How far a snapshot has come.
struct SnapshotProgress {
    /// What was made so far: files of any kind, directories included, and bytes of their data.
    private(set) var files: UInt64 = 0
    private(set) var bytes: UInt64 = 0
    private let show: ((CoordinationProgress) -> Void)?
    private var next = Clock.monotonic + SnapshotProgress.interval

    /// Nanoseconds between two words: as much as anybody reads.
    private static let interval: Int64 = 100_000_000

    init(_ show: ((CoordinationProgress) -> Void)?) { self.show = show }

    mutating func noteFile() {
        files += 1
        sayAtTimes()
    }

    mutating func note(bytes count: Int) {
        bytes += UInt64(count)
        sayAtTimes()
    }

    private mutating func sayAtTimes() {
        if show != nil, Clock.monotonic >= next { say() }
    }

    mutating func say() {
        show?(CoordinationProgress(stage: "copying", done: bytes, total: nil, files: files, isBytes: true))
        next = Clock.monotonic + Self.interval
    }
}
