import GrantCommandLine
import GrantModel
import GrantStore
import GrantSystem

/// An entry of the log, for people and as JSON.
package enum LogText {
    package static func json(_ entry: LogEntry) -> [(String, JSON)] {
        var members: [(String, JSON)] = [
            ("number", .integer(entry.number)), ("time", JSON.time(entry.time)), ("event", .string(entry.event.rawValue)),
            ("uid", .unsigned(UInt64(entry.actor.uid))), ("pid", .integer(Int64(entry.actor.pid))),
            ("loginUid", entry.actor.loginUID.map { .unsigned(UInt64($0)) } ?? .null),
            ("program", .string(entry.actor.program)), ("view", entry.view.map { .string($0.description) } ?? .null),
            ("grant", entry.grant.map { .string($0.description) } ?? .null),
        ]
        if let name = entry.name { members += JSON.members("name", name.bytes) } else { members.append(("name", .null)) }
        members.append(("detail", .string(entry.detail)))
        if let access = entry.access { members.append(("access", .string(access.rawValue))) }
        if let path = entry.path { members += JSON.members("path", path) }
        if let newPath = entry.newPath { members += JSON.members("newPath", newPath) }
        if let count = entry.count { members.append(("count", .integer(count))) }
        if let error = entry.error { members.append(("result", .integer(Int64(error)))) }
        return members
    }

    package static func line(_ entry: LogEntry) -> String {
        if let command = RunEntries.command(of: entry), let view = entry.view {
            return
                "\(Timestamp.localWithOffset(entry.time))  ran \(Terminal.visible(command)) in view \(Terminal.visible(view.description))"
                + "  [\(entry.actor.description)]"
        }
        var text = "\(Timestamp.localWithOffset(entry.time))  \(entry.event.rawValue)"
        if let name = entry.name { text += " \(Terminal.visible(name.bytes))" }
        if let grant = entry.grant { text += " (\(grant.description.prefix(12)))" }
        if let view = entry.view { text += " in view \(Terminal.visible(view.description))" }
        if let path = entry.path { text += " \(Terminal.visible(path))" }
        if let newPath = entry.newPath { text += " to \(Terminal.visible(newPath))" }
        if let access = entry.access { text += access.purpose }
        if let error = entry.error, error != 0 { text += ": \(Errno(error))" }
        if entry.isUnfinished { text += ": begun, and not known to have ended" }
        if !entry.detail.isEmpty { text += ": \(Terminal.visible(entry.detail))" }
        return text + "  [\(entry.actor.description)]"
    }
}

extension GrantStore {
    /// Returns the number of the last entry. `waits`: leaves entries after an unfinished one for the next time.
    @discardableResult
    package func readLog(
        after number: Int64, waits: Bool = false, _ body: (LogEntry) throws(GrantError) -> Void
    ) throws(GrantError) -> Int64 {
        let batch = 1000
        var last = number
        while true {
            let entries = try log(after: last, limit: batch)
            for entry in entries {
                if waits, entry.isUnderWay { return last }
                try body(entry)
                last = entry.number
            }
            if entries.count < batch { return last }
        }
    }
}

extension LogEntry {
    /// Whether the operation has just started. Following the log waits for its result, at most some seconds.
    package var isUnderWay: Bool { isUnfinished && Instant(nanoseconds: Clock.realtime).seconds(since: time) < 5 }
}

extension OpenAccess {
    /// For people.
    fileprivate var purpose: String {
        switch self {
        case .read: " for reading"
        case .write: " for writing"
        case .readWrite: " for reading and writing"
        }
    }
}
