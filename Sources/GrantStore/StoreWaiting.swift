import Glibc
import GrantSystem

/// How long one connection waits for others, and how often it looks.
///
/// Many commands at once make a queue that no single one of them is to blame for. So the patience is with a transaction and not with the queue: as long as others get on, which the
/// files of the database show, it begins anew. SQLite has no order among those who wait. They look at moments of chance, and the oftener the longer they have waited, so that nobody
/// is passed over for ever.
final class StoreWaiting {
    private let files: [String]
    private var begun: Int64 = 0
    private var progress: Int64 = 0
    private var seen: [Int64] = []
    /// In place of the patience, for all of a wait.
    private var limit: Int64?

    /// With others that do not get on, in nanoseconds.
    private static let patience: Int64 = 10_000_000_000
    /// With a queue, however it gets on.
    private static let most: Int64 = 60_000_000_000

    /// `path`: the database's.
    init(path: String) { files = [path, path + "-wal"] }

    /// For sqlite3_busy_handler, with a value of this type that is not retained.
    static let handler: @convention(c) (UnsafeMutableRawPointer?, Int32) -> Int32 = { context, count in
        guard let context else { return 0 }
        return Unmanaged<StoreWaiting>.fromOpaque(context).takeUnretainedValue().wait(isFirst: count == 0) ? 1 : 0
    }

    /// Waits in `body` for so many nanoseconds at the most.
    func withLimit(_ nanoseconds: Int64, _ body: () -> Void) {
        limit = nanoseconds
        body()
        limit = nil
    }

    /// Sleeps a moment. false when it has been long enough.
    private func wait(isFirst: Bool) -> Bool {
        let now = Clock.monotonic
        let stamps = files.map(StoreWaiting.stamp)
        if isFirst { begun = now }
        if isFirst || stamps != seen { (progress, seen) = (now, stamps) }
        let waited = now - begun
        if waited >= limit ?? StoreWaiting.most || now - progress >= limit ?? StoreWaiting.patience { return false }
        // 1 to 20 ms in the first second, a third of that in the third.
        let longest = max(2_000, 20_000 / (1 + waited / 1_000_000_000))
        usleep(waited < 5_000_000 ? 1_000 : UInt32.random(in: 1_000...UInt32(truncatingIfNeeded: longest)))
        return true
    }

    /// Another one after each commit and each checkpoint; 0 when there is no such file.
    private static func stamp(_ file: String) -> Int64 {
        var status = stat()
        guard stat(file, &status) == 0 else { return 0 }
        return Int64(truncatingIfNeeded: status.st_mtim.tv_sec &* 1_000_000_000 &+ status.st_mtim.tv_nsec ^ status.st_size)
    }
}
