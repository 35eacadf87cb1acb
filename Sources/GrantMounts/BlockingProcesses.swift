import Glibc
import GrantControl
import GrantStore
import GrantSystem

/// Processes that keep a live mount from confirming a withdrawal.
///
/// Either they get no processor to process a reply, which the daemon finds out, or they copy a
/// listing to memory that does not arrive. For the second the daemon names directories, and the
/// threads are found here.
struct BlockingProcesses: Sendable {
    /// Those without a processor.
    private let starved: [Int32]
    /// The listings that block the named directories, by process.
    private let listings: [Int32: Set<BlockedListing>]
    private let record: MountRecord

    /// A listing that is in the same call after this time, in nanoseconds, is blocked.
    private static let patience: Int64 = 50_000_000

    /// Finds the processes of one outcome or several.
    init(_ outcomes: [GrantOutcome], of record: MountRecord, until deadline: Int64) {
        let waiting = outcomes.filter { !$0.confirmed }
        let named = Set(waiting.flatMap(\.processes))
        self.record = record
        starved = named.isEmpty ? [] : named.subtracting(Self.spared(record)).sorted()
        listings = Self.blocking(Set(waiting.flatMap(\.blockedDirectories)), of: record, until: deadline)
    }

    /// Those that concern one of the outcomes.
    func of(_ outcome: GrantOutcome) -> [Int32] {
        let directories = Set(outcome.blockedDirectories)
        let direct = listings.filter { $0.value.contains { directories.contains($0.node) } }
        let found = direct.isEmpty && !directories.isEmpty ? listings : direct
        return Set(starved).intersection(outcome.processes).union(found.keys).sorted()
    }

    /// The listings that block these directories, by process.
    ///
    /// A rename between two directories holds the lock of one and waits for that of the other,
    /// which may be of another grant. If one waits, all blocked listings of the mount count.
    private static func blocking(
        _ directories: Set<UInt64>, of record: MountRecord, until deadline: Int64
    ) -> [Int32: Set<BlockedListing>] {
        if directories.isEmpty { return [:] }
        let all = ((try? DirectoryNames.of("/proc".utf8)) ?? []).compactMap { Int32(String(decoding: $0, as: UTF8.self)) }
        let pids = Set(all).subtracting(spared(record)).sorted()
        let first = look(at: pids, of: record, until: deadline)
        if first.isEmpty { return [:] }
        usleep(UInt32(clamping: patience / 1_000))
        let second = look(at: first.keys.sorted(), of: record, until: max(deadline, Clock.deadline(seconds: 1)))
        let blocked = intersection(first, second)
        let direct = blocked.compactMapValues { listings in
            let direct = listings.filter { directories.contains($0.node) }
            return direct.isEmpty ? nil : direct
        }
        let explained = Set(direct.values.joined().map(\.node))
        return explained == directories || !hasQueuedRename(pids, until: deadline) ? direct : blocked
    }

    private static func intersection(
        _ one: [Int32: Set<BlockedListing>], _ other: [Int32: Set<BlockedListing>]
    ) -> [Int32: Set<BlockedListing>] {
        one.compactMapValues { $0.isEmpty ? nil : $0 }.reduce(into: [:]) { result, item in
            let both = item.value.intersection(other[item.key] ?? [])
            if !both.isEmpty { result[item.key] = both }
        }
    }

    /// The blocked listings of the mount, by process.
    private static func look(at pids: [Int32], of record: MountRecord, until deadline: Int64) -> [Int32: Set<BlockedListing>] {
        guard let connection = record.connection else { return [:] }
        return ProcessInspector.inspect(pids, until: deadline) { pid, onProgress in
            Set(
                BlockedListing.of(pid, onProgress).filter { listing in
                    listing.device == connection.device
                        && (listing.generation == 0 || connection.generation.map { $0 == listing.generation } ?? true)
                })
        }.found.filter { !$0.value.isEmpty }
    }

    /// Whether a thread has the lock of one directory for a rename, and waits for that of another
    /// (fs/namei.c, lock_rename).
    private static func hasQueuedRename(_ pids: [Int32], until deadline: Int64) -> Bool {
        ProcessInspector.inspect(pids, until: deadline) { pid, onProgress in
            let tasks = "/proc/\(pid)/task"
            return ((try? DirectoryNames.of(tasks.utf8)) ?? []).contains { thread in
                onProgress()
                let place = (try? File.contents(of: Array(tasks.utf8) + [0x2F] + thread + Array("/wchan".utf8))) ?? []
                return place.starts(with: "lock_two_directories".utf8) || place.starts(with: "lock_rename".utf8)
            }
        }.found.values.contains(true)
    }

    /// This process, the daemon and its keeper.
    private static func spared(_ record: MountRecord) -> Set<Int32> {
        Set([getpid(), record.pid] + [WorkingKeeper.of(record)].compactMap { $0 })
    }

    /// Kills the processes that hold something of the mount, and waits for their end. Returns them.
    func kill(until deadline: Int64) -> [Holder] {
        guard let device = record.connection?.device else { return [] }
        return Set(starved).union(listings.keys).sorted().compactMap { pid in
            Holder.kill(pid, of: device, until: deadline, waits: true) { _ in
                guard let blocked = listings[pid], !starved.contains(pid) else { return true }
                let now = Self.look(at: [pid], of: record, until: Clock.deadline(seconds: 1))
                return !blocked.isDisjoint(with: now[pid] ?? [])
            }
        }
    }
}
