import GrantSystem

/// The progress of a snapshot.
struct SnapshotProgress {
    /// Files made so far, directories included, and bytes of their data.
    private(set) var files: UInt64 = 0
    private(set) var bytes: UInt64 = 0
    private let show: ((CoordinationProgress) -> Void)?
    private var next = Clock.monotonic + SnapshotProgress.interval

    /// Nanoseconds between two reports.
    private static let interval: Int64 = 100_000_000

    init(_ show: ((CoordinationProgress) -> Void)?) { self.show = show }

    mutating func countFile() {
        files += 1
        reportIfDue()
    }

    mutating func add(bytes count: Int) {
        bytes += UInt64(count)
        reportIfDue()
    }

    private mutating func reportIfDue() {
        if show != nil, Clock.monotonic >= next { report() }
    }

    mutating func report() {
        show?(CoordinationProgress(stage: "copying", done: bytes, total: nil, files: files, isBytes: true))
        next = Clock.monotonic + Self.interval
    }
}
