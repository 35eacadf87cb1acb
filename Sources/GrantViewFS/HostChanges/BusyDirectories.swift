import GrantSystem

/// Directories in which somebody, on the host or through the mount, writes to a file all the time. A write that is told costs the writer a
/// microsecond more, so there the kernel is asked not to tell, for a few milliseconds at a time. Belongs to one thread.
///
/// What is written meanwhile is told afterwards for the files that were being written to on the host; for others when their writer closes them.
struct BusyDirectories {
    private struct Written {
        var change: Change
        /// When it was told last.
        var told: Int64
        /// When a write was that did not come through the mount, whose kernel knows of its own.
        var toldOfOthers: Int64?
    }

    private struct Directory {
        var files: [UInt64: Written] = [:]
        /// When it is to be listened to again; nil while it is.
        var due: Int64?
        /// When it last was listened to again.
        var resumed: Int64 = 0
    }

    /// Two writes within this time make a busy file.
    private static let busyWithin: Int64 = 20_000_000
    /// Below the 20 ms within which a change is to show.
    private static let pause: Int64 = 15_000_000
    /// How long after its last told write a file counts as written to.
    private static let writtenFor: Int64 = 250_000_000
    private static let remembered = 1024
    private static let rememberedFiles = 256

    private var directories: [UInt64: Directory] = [:]
    /// Paused directories, in the order of their times.
    private var paused: [UInt64] = []

    /// Notes a told write, which was made by the daemon itself if `isOwn`; true when the directory is to be paused now.
    mutating func isBusy(_ change: Change, isOwn: Bool, now: Int64) -> Bool {
        if directories.count >= Self.remembered { forgetQuiet(now) }
        var directory = directories[change.directory] ?? Directory()
        if directory.files.count >= Self.rememberedFiles {
            directory.files = directory.files.filter { now - $0.value.told < Self.busyWithin }
            // So many at once: each is told when its writer closes it.
            if directory.files.count >= Self.rememberedFiles { directory.files = [:] }
        }
        let known = directory.files[change.file_key]
        let before = known?.told
        directory.files[change.file_key] = Written(change: change, told: now, toldOfOthers: isOwn ? known?.toldOfOthers : now)
        defer { directories[change.directory] = directory }
        // While it is paused, what comes was under way.
        guard directory.due == nil, let before, now - max(before, directory.resumed) < Self.busyWithin else { return false }
        directory.due = now + Self.pause
        paused.append(change.directory)
        return true
    }

    /// A directory whose pause is over, by one of its changes, and the files that were being written to on the host.
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
        directories = directories.filter { $0.value.due != nil || $0.value.files.values.contains { now - $0.told < Self.busyWithin } }
    }
}
