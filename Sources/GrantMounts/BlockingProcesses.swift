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
    let starved: [Int32]
    /// The listings of the named directories that stay blocked, by process.
    let listings: [Int32: Set<BlockedListing>]
    private let record: MountRecord

    /// A listing that is in the same call after this time, in nanoseconds, is blocked.
    private static let patience: Int64 = 50_000_000

    /// Those that concern one of the outcomes.
    func of(_ outcome: GrantOutcome) -> [Int32] {
        let listing = listings.filter { $0.value.contains { outcome.blockedDirectories.contains($0.node) } }
        return Set(starved).intersection(outcome.processes).union(listing.keys).sorted()
    }

    private var all: [Int32] { Set(starved).union(listings.keys).sorted() }

    /// Finds the processes of one outcome or several.
    init(_ outcomes: [GrantOutcome], of record: MountRecord, until deadline: Int64) {
        let waiting = outcomes.filter { !$0.confirmed }
        let named = Set(waiting.flatMap(\.processes))
        self.record = record
        // A daemon names no process of grantfs. This is the last check before a process is killed.
        starved = named.isEmpty ? [] : named.subtracting(Self.spared(record)).sorted()
        listings = Self.blocked(Set(waiting.flatMap(\.blockedDirectories)), of: record, until: deadline)
    }

    private static func blocked(
        _ directories: Set<UInt64>, of record: MountRecord, until deadline: Int64
    ) -> [Int32: Set<BlockedListing>] {
        if directories.isEmpty { return [:] }
        let pids = ((try? DirectoryNames.of("/proc".utf8)) ?? []).compactMap { Int32(String(decoding: $0, as: UTF8.self)) }
        let first = look(at: Set(pids).subtracting(spared(record)).sorted(), directories, of: record, until: deadline)
        if first.isEmpty { return [:] }
        usleep(UInt32(clamping: patience / 1_000))
        let second = look(at: first.keys.sorted(), directories, of: record, until: max(deadline, Clock.deadline(seconds: 1)))
        return second.reduce(into: [:]) { blocked, one in
            let same = one.value.intersection(first[one.key] ?? [])
            if !same.isEmpty { blocked[one.key] = same }
        }
    }

    /// The blocked listings of these directories, by process.
    private static func look(
        at pids: [Int32], _ directories: Set<UInt64>, of record: MountRecord, until deadline: Int64
    ) -> [Int32: Set<BlockedListing>] {
        guard let connection = record.connection else { return [:] }
        return ProcessInspector.inspect(pids, until: deadline) { pid, onProgress in
            Set(
                BlockedListing.of(pid, onProgress).filter { listing in
                    listing.device == connection.device && directories.contains(listing.node)
                        && (connection.generation == nil || listing.generation == connection.generation)
                })
        }.found.filter { !$0.value.isEmpty }
    }

    /// This process, the daemon and its keeper.
    private static func spared(_ record: MountRecord) -> Set<Int32> {
        Set([getpid(), record.pid] + [WorkingKeeper.of(record)].compactMap { $0 })
    }

    /// Kills the processes that hold something of the mount, and waits for their end. Returns them.
    func kill(until deadline: Int64) -> [Holder] {
        guard let device = record.connection?.device else { return [] }
        return all.compactMap { pid in
            Holder.kill(pid, of: device, until: deadline, waits: true) { _ in
                guard let blocked = listings[pid], !starved.contains(pid) else { return true }
                let now = Self.look(at: [pid], Set(blocked.map(\.node)), of: record, until: Clock.deadline(seconds: 1))
                return !blocked.isDisjoint(with: now[pid] ?? [])
            }
        }
    }
}
