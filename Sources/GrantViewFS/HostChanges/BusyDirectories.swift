import GrantSystem

/// Directories with a file that is written continuously, on the host or through the mount.
///
/// Each reported write costs the writer a microsecond, so reports are paused there for a few
/// milliseconds at a time. Writes during a pause are reported afterwards for files that were being
/// written on the host. For other files they are reported when the writer closes the file. Belongs
/// to one thread.
struct BusyDirectories {
    private struct Written {
        var change: Change
        /// The last report.
        var told: Int64
        /// The last write that did not come through this mount, whose kernel knows its own.
        var toldOfOthers: Int64?
    }

    private struct Directory {
        var files: [UInt64: Written] = [:]
        /// When reports resume. nil while they are on.
        var due: Int64?
        /// When reports last resumed.
        var resumed: Int64 = 0
    }

    /// Two writes within this time make a file busy.
    private static let busyWithin: Int64 = 20_000_000
    /// Below the 20 ms within which a change must show.
    private static let pause: Int64 = 15_000_000
    /// How long after its last reported write a file counts as being written.
    private static let writtenFor: Int64 = 250_000_000
    private static let remembered = 1024
    private static let rememberedFiles = 256

    private var directories: [UInt64: Directory] = [:]
    private var quietForgotten: Int64 = 0
    var count: Int { directories.count }
    /// Paused directories, by due time.
    private var paused: [UInt64] = []

    /// Records a reported write. Returns true if the directory must be paused now.
    ///
    /// `isOwn`: the write is the daemon's.
    mutating func isBusy(_ change: Change, isOwn: Bool, now: Int64) -> Bool {
        if directories.count >= Self.remembered, directories[change.directory] == nil {
            forgetQuiet(now)
            // Its writes are all reported.
            if directories.count >= Self.remembered { return false }
        }
        var directory = directories[change.directory] ?? Directory()
        if directory.files.count >= Self.rememberedFiles {
            directory.files = directory.files.filter { now - $0.value.told < Self.busyWithin }
            // Too many at once: each is reported when its writer closes it.
            if directory.files.count >= Self.rememberedFiles { directory.files = [:] }
        }
        let known = directory.files[change.file_key]
        let before = known?.told
        directory.files[change.file_key] = Written(change: change, told: now, toldOfOthers: isOwn ? known?.toldOfOthers : now)
        defer { directories[change.directory] = directory }
        // Events during a pause were queued before it.
        guard directory.due == nil, let before, now - max(before, directory.resumed) < Self.busyWithin else { return false }
        directory.due = now + Self.pause
        paused.append(change.directory)
        return true
    }

    /// Takes a directory whose pause is over, as one of its changes.
    ///
    /// Also returns the files that were being written on the host.
    mutating func takeDue(now: Int64) -> (directory: Change?, files: [Change])? {
        guard let key = paused.first, let due = directories[key]?.due, due <= now else { return nil }
        paused.removeFirst()
        guard var directory = directories[key] else { return (nil, []) }
        directory.due = nil
        directory.resumed = now
        directory.files = directory.files.filter { now - $0.value.told < Self.writtenFor }
        directories[key] = directory
        let files = directory.files.values
        return (files.first?.change, files.filter { now - ($0.toldOfOthers ?? .min / 2) < Self.writtenFor }.map(\.change))
    }

    func millisecondsUntilDue(now: Int64) -> Int32 {
        guard let key = paused.first, let due = directories[key]?.due else { return 10_000 }
        return Int32(clamping: min(max(0, (due &- now &+ 999_999) / 1_000_000), 10_000))
    }

    private mutating func forgetQuiet(_ now: Int64) {
        if now - quietForgotten < Self.busyWithin { return }
        quietForgotten = now
        directories = directories.filter { $0.value.due != nil || $0.value.files.values.contains { now - $0.told < Self.busyWithin } }
    }
}
