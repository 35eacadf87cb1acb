import Glibc
import GrantSystem

/// The busy handler of one connection: how long it waits for others, and how often it tries.
///
/// Many concurrent commands form a queue, and no single command causes its length. So the time-out
/// is for a transaction and not for the queue. It starts again whenever others make progress, which
/// the files of the database show. SQLite has no fair queue. Waiters try at random times, and more
/// often the longer they have waited, so that none starves.
final class StoreBusyHandler {
    private let files: [String]
    private var waitStart: Int64 = 0
    private var lastProgress: Int64 = 0
    private var lastStamps: [Int64] = []
    /// Replaces both time-outs for the duration of a wait.
    private var limit: Int64?

    /// The time-out without progress of others, in nanoseconds.
    private static let timeout: Int64 = 10_000_000_000
    /// The time-out in total, even with progress, in nanoseconds.
    private static let maxWait: Int64 = 60_000_000_000

    /// `path`: the database file.
    init(path: String) { files = [path, path + "-wal"] }

    /// The C function for sqlite3_busy_handler.
    ///
    /// Its context is an unretained value of this type.
    static let handler: @convention(c) (UnsafeMutableRawPointer?, Int32) -> Int32 = { context, count in
        guard let context else { return 0 }
        return Unmanaged<StoreBusyHandler>.fromOpaque(context).takeUnretainedValue().wait(isFirst: count == 0) ? 1 : 0
    }

    /// Runs `body` with a maximum wait, in nanoseconds.
    func withLimit(_ nanoseconds: Int64, _ body: () -> Void) {
        limit = nanoseconds
        body()
        limit = nil
    }

    /// Sleeps a moment. Returns false when the time is over.
    private func wait(isFirst: Bool) -> Bool {
        let now = Clock.monotonic
        let currentStamps = files.map(StoreBusyHandler.stamp)
        if isFirst { waitStart = now }
        if isFirst || currentStamps != lastStamps { (lastProgress, lastStamps) = (now, currentStamps) }
        let elapsed = now - waitStart
        if elapsed >= limit ?? StoreBusyHandler.maxWait || now - lastProgress >= limit ?? StoreBusyHandler.timeout { return false }
        // 1 to 20 ms in the first second, a third of that in the third.
        let longest = max(2_000, 20_000 / (1 + elapsed / 1_000_000_000))
        usleep(elapsed < 5_000_000 ? 1_000 : UInt32.random(in: 1_000...UInt32(truncatingIfNeeded: longest)))
        return true
    }

    /// Changes with each commit and checkpoint. 0 if there is no file.
    private static func stamp(_ file: String) -> Int64 {
        var status = stat()
        guard stat(file, &status) == 0 else { return 0 }
        return Int64(truncatingIfNeeded: status.st_mtim.tv_sec &* 1_000_000_000 &+ status.st_mtim.tv_nsec ^ status.st_size)
    }
}
