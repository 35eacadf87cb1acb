import GrantControl
import GrantModel
import GrantStore
import GrantSystem

/// The status of a mount, and the processes that hold something of it.
public struct MountReport: Sendable {
    public let record: MountRecord
    /// The daemon's status, or nil if it did not answer, for `unresponsiveReason`.
    public private(set) var status: MountStatus?
    public let unresponsiveReason: String?
    public let holders: [Holder]
    /// Processes that may hold something and could not be inspected.
    public let unseen: [UnseenProcess]
    /// Whether its daemon has died and something is left of the mount.
    public var isDead = false
    /// Its counters, if they were requested.
    public var counts: MountMetrics?

    /// Returns the same report with only those grants for which the condition holds.
    public func showing(_ isMeant: (GrantStatus) -> Bool) -> MountReport {
        var report = self
        report.status?.grants.removeAll { !isMeant($0) }
        return report
    }
}

extension GrantAdministrator {
    /// Returns the mountpoints of this store's mounts whose daemon has died, and of any other dead view that this user may inspect.
    public func deadMounts() throws(GrantError) -> [[UInt8]] {
        let records = try store.mounts()
        let entries = try LoopCheck.currentTable().entries.filter { $0.type == GrantAdministrator.filesystemType }
        let paths = Set(entries.map(\.mountpoint)).sorted { $0.lexicographicallyPrecedes($1) }
        let isDead = inParallel(paths) { path in
            if records.contains(where: { $0.mountpoint == path && $0.isServed(in: store.runDirectory) }) { return false }
            let isOver = records.contains { $0.mountpoint == path && $0.isDefunct(in: store.runDirectory) }
            return (try? Mountpoint(path))?.isDead(ifSilent: isOver) ?? false
        }
        return zip(paths, isDead).filter(\.1).map(\.0)
    }

    /// Returns every mount of the store that is live or of which something is left, with its
    /// counters if `counting`. All daemons are asked concurrently. Each has `timeout` seconds, and
    /// the search for holders as many, at least five. Records of mounts of which nothing is left
    /// are removed.
    public func status(view: ViewName? = nil, timeout: Double = 2, counting: Bool = false) throws(GrantError) -> [MountReport] {
        let records = try store.mounts(view: view)
        let answers = inParallel(records) { record in
            Daemons.ask(record, counting ? .metrics : .status, of: store, deadline: Clock.deadline(seconds: timeout))
        }
        // The search takes a fraction of a second on most machines. A search on a large machine may
        // take longer than the daemons may.
        let deadline = Clock.deadline(seconds: max(timeout, 5))
        let deadMounts = try store.deadMounts(of: zip(records, answers).filter { $1.isDead }.map(\.0), until: deadline)
        let table = (try? MountTable.current()) ?? MountTable(entries: [])
        let devices = zip(records, answers).map { $1.isDead ? nil : $0.device(in: table) }
        let search = Holder.search(of: Set(devices.compactMap { $0 }), until: deadline)
        return records.indices.compactMap { index in
            let record = records[index]
            let unseen = search.unseen
            var held = devices[index].flatMap { search.holders[$0] } ?? []
            if let device = devices[index], !table.has(device) { held += Holder.ofMount(device, until: deadline) }
            switch answers[index] {
            case .failure(.dead):
                guard let left = deadMounts.first(where: { $0.record.id == record.id }) else { return nil }
                return MountReport(
                    record: record, status: nil, unresponsiveReason: nil, holders: left.holders, unseen: left.unseen, isDead: true)
            case .success(.status(let status)):
                return MountReport(record: record, status: status, unresponsiveReason: nil, holders: held, unseen: unseen)
            case .success(.metrics(let counts)):
                return MountReport(
                    record: record, status: counts.status, unresponsiveReason: nil, holders: held, unseen: unseen, counts: counts)
            case .success(.failed(let reason)), .failure(.unresponsive(let reason)):
                return MountReport(record: record, status: nil, unresponsiveReason: reason, holders: held, unseen: unseen)
            case .success(.done), .success(.applied), .success(.located), .success(.progress), .success(.waits), .success(.questions):
                return MountReport(
                    record: record, status: nil, unresponsiveReason: "its daemon answered something else", holders: held, unseen: unseen)
            }
        }
    }
}
