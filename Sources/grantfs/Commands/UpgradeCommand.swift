import Glibc
import GrantAdministration
import GrantCommandLine
import GrantCommandSupport
import GrantModel
import GrantStore
import GrantSystem

/// `grantfs upgrade`
enum UpgradeCommand {
    private struct Outcome {
        let record: MountRecord
        /// It is nil if the daemon was not replaced.
        let pid: Int32?
        let pausedNanoseconds: Int64?
    }

    static func run(_ arguments: ParsedArguments) throws(GrantError) -> Int32 {
        guard arguments.has("all") != !arguments.operands.isEmpty else {
            throw GrantError(.usage, "which mount?", cause: "it is either --all or one or more mountpoints")
        }
        let store = try arguments.openStore()
        let records = try chosen(arguments, store)
        var outcomes: [Outcome] = []
        for record in records {
            let outcome = try upgrade(record, store)
            outcomes.append(outcome)
            guard !arguments.wantsJSON, let pid = outcome.pid else { continue }
            let milliseconds = outcome.pausedNanoseconds.map { Double($0) / 1e6 } ?? 0
            let paused = String(Int64(saturating: milliseconds * 10) / 10) + "." + String(Int64(saturating: milliseconds * 10) % 10)
            try Terminal.print("\(Terminal.visible(record.mountpoint)): pid \(record.pid) → \(pid), paused for \(paused) ms")
        }
        if arguments.wantsJSON { try Terminal.print(JSON.object([("mounts", .array(outcomes.map { .object(json($0)) }))]).text) }
        return outcomes.allSatisfy { $0.pid != nil } ? 0 : 3
    }

    private static func chosen(_ arguments: ParsedArguments, _ store: GrantStore) throws(GrantError) -> [MountRecord] {
        let live = try store.mounts().filter { $0.process.mayRun && $0.connection != nil }
        if arguments.has("all") { return live }
        var records: [MountRecord] = []
        for operand in arguments.operands {
            let mountpoint = try Mountpoint(operand)
            // The last one is the topmost.
            guard let record = live.last(where: { $0.mountpoint == mountpoint.path }) else {
                throw GrantError(
                    .notFound, "\(mountpoint.shown) cannot be upgraded", cause: "no live mount of the store \(store.directory) is there",
                    advice: "grantfs status lists them")
            }
            records.append(record)
        }
        return records
    }

    private static func upgrade(_ record: MountRecord, _ store: GrantStore) throws(GrantError) -> Outcome {
        let place = Terminal.visible(record.mountpoint)
        if let other = link("/proc/\(record.pid)/ns/mnt"), let own = link("/proc/self/ns/mnt"), other != own {
            Terminal.report(
                GrantError(
                    .system, "the mount at \(place) is not handed over, and goes on as before",
                    cause: "its daemon is in another mount namespace",
                    advice: "nsenter --target \(record.pid) --mount grantfs upgrade …"))
            return Outcome(record: record, pid: nil, pausedNanoseconds: nil)
        }
        let program = try CompanionProgram.daemon.file()
        do throws(Errno) {
            let words = ["grantfs", "take-over", "--store", store.directory, record.id.description].map { Array($0.utf8) }
            let (status, said) = try BackgroundStart.start(program, words: words)
            guard status == 0 else { return Outcome(record: record, pid: nil, pausedNanoseconds: nil) }
            let pid = (try? store.mounts().first { $0.id == record.id })??.pid
            return Outcome(record: record, pid: pid, pausedNanoseconds: Int64(String(decoding: said, as: UTF8.self)))
        } catch {
            throw GrantError(.system, "no daemon can be started for \(place)", cause: error.description)
        }
    }

    private static func link(_ path: String) -> String? {
        var buffer = [CChar](repeating: 0, count: 256)
        let count = readlink(path, &buffer, buffer.count)
        return count > 0 ? String(decoding: buffer[..<count].map { UInt8(bitPattern: $0) }, as: UTF8.self) : nil
    }

    private static func json(_ outcome: Outcome) -> [(String, JSON)] {
        [("view", .string(outcome.record.view.description))] + JSON.members("mountpoint", outcome.record.mountpoint) + [
            ("upgraded", .bool(outcome.pid != nil)), ("previousPid", .integer(Int64(outcome.record.pid))),
            ("pid", outcome.pid.map { .integer(Int64($0)) } ?? .null),
            ("pausedMilliseconds", outcome.pausedNanoseconds.map { .number(Double($0) / 1e6) } ?? .null),
        ]
    }
}
