import GrantAdministration
import GrantCommandLine
import GrantCommandSupport
import GrantModel
import GrantStore
import GrantSystem

/// `log --follow`: new entries of the log, and events of mounts, which the log does not record.
struct LogFollower {
    /// Seconds to wait for an event of a mount before the store is looked at again.
    private static let pause = 0.2
    /// The number of pauses after which the log is read even if the store did not change.
    private static let pausesAtMost = 25

    private let store: GrantStore
    private let filter: LogFilter
    private let isJSON: Bool
    private let stream: EventStream
    /// The number of the last entry that was read.
    private var last: Int64
    /// Every path so far of the selected grants. Events have paths and no grants.
    private var paths: Set<[UInt8]> = []

    init(_ store: GrantStore, _ filter: LogFilter, asJSON: Bool) throws(GrantError) {
        (self.store, self.filter, isJSON) = (store, filter, asJSON)
        stream = EventStream(store, view: filter.view)
        last = filter.wantsEarlier ? 0 : try store.lastLogNumber()
    }

    /// Returns when stdout has no reader any more.
    mutating func run() throws(GrantError) -> Int32 {
        if filter.count != nil { try showEarlier() }
        var events = try stream.next(within: 0)
        while Terminal.hasReader {
            // The version is read first: entries added meanwhile change it again.
            let version = try store.dataVersion()
            if filter.isOfSomeGrants { try notePaths() }
            last = try store.readLog(after: last, waits: true) { entry throws(GrantError) in
                if filter.takes(entry) { try show(entry) }
            }
            for event in events where takes(event) { try show(event) }
            // Now and then also without a change: an operation under way may never end.
            events = try stream.next(within: Self.pause)
            var pauses = 1
            while events.isEmpty, pauses < Self.pausesAtMost, Terminal.hasReader, try store.dataVersion() == version {
                events = try stream.next(within: Self.pause)
                pauses += 1
            }
        }
        return 0
    }

    private mutating func showEarlier() throws(GrantError) {
        var earlier: [LogEntry] = []
        last = try store.readLog(after: 0, waits: true) { entry in if filter.takes(entry) { earlier.append(entry) } }
        for entry in filter.last(earlier) { try show(entry) }
    }

    private mutating func notePaths() throws(GrantError) {
        for grant in try store.grants(view: filter.view) where filter.isOfGrant(grant) { paths.insert(grant.bookmark.path) }
    }

    private func takes(_ event: MountEvent) -> Bool {
        switch event.kind {
        // They concern every grant of the mount.
        case .missed, .ended: return true
        default: break
        }
        guard filter.isOfSomeGrants else { return true }
        return [event.path, event.newPath].compactMap { $0 }.contains { path in
            paths.contains { MountTable.path(path, isAtOrBelow: $0) }
        }
    }

    private func show(_ entry: LogEntry) throws(GrantError) {
        try Terminal.print(isJSON ? JSON.object(LogText.json(entry)).text : LogText.line(entry))
    }

    private func show(_ event: MountEvent) throws(GrantError) {
        try Terminal.print(isJSON ? JSON.object(LogFollower.json(event)).text : LogFollower.line(event))
    }

    private static func json(_ event: MountEvent) -> [(String, JSON)] {
        [("number", .unsigned(event.number)), ("time", JSON.time(event.time)), ("event", .string(event.kind.rawValue))]
            + JSON.members("mountpoint", event.mountpoint) + JSON.members("path", event.path)
            + (event.newPath.map { JSON.members("newPath", $0) } ?? [("newPath", .null)])
            + [("pid", .integer(Int64(event.pid))), ("detail", .string(event.text))]
    }

    private static func line(_ event: MountEvent) -> String {
        var text = "\(Timestamp.localWithOffset(event.time))  \(event.kind.rawValue) \(Terminal.visible(event.path))"
        if let newPath = event.newPath { text += " to \(Terminal.visible(newPath))" }
        if !event.text.isEmpty { text += ": \(Terminal.visible(event.text))" }
        return text + "  [mount \(Terminal.visible(event.mountpoint))" + (event.pid > 0 ? ", pid \(event.pid)]" : "]")
    }
}
