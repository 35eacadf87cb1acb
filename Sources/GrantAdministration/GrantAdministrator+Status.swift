import GrantControl
import GrantModel
import GrantStore
import GrantSystem

/// A mount, and who holds something of it.
public struct MountReport: Sendable {
    public let record: MountRecord
    /// nil when the daemon did not answer; `silence` then says why.
    public private(set) var status: MountStatus?
    public let silence: String?
    public let holders: [Holder]
    /// Who may be a holder and could not be looked at.
    public let unseen: [UnseenProcess]
    /// Its daemon has ended, and something is left of it.
    public var isDead = false
    /// What it counts, where that was asked for.
    public var counts: MountMetrics?

    /// The same, with those of its grants alone that meet a condition.
    public func showing(_ isMeant: (GrantStatus) -> Bool) -> MountReport {
        var report = self
        report.status?.grants.removeAll { !isMeant($0) }
        return report
    }
}

extension GrantAdministrator {
    /// The mountpoints of this store's mounts that stand and whose daemon has ended, and of every other dead view that this user may look at.
    public func deadMounts() throws(GrantError) -> [[UInt8]] {
        let records = try store.mounts()
        let entries = try Placement.currentTable().entries.filter { $0.type == GrantAdministrator.filesystemType }
        let paths = Set(entries.map(\.mountpoint)).sorted { $0.lexicographicallyPrecedes($1) }
        let isDead = inParallel(paths) { path in
            if records.contains(where: { $0.mountpoint == path && $0.isServed(in: store.runDirectory) }) { return false }
            let isOver = records.contains { $0.mountpoint == path && $0.isOver(in: store.runDirectory) }
            return (try? Mountpoint(path))?.isDead(ifSilent: isOver) ?? false
        }
        return zip(paths, isDead).filter(\.1).map(\.0)
    }

    /// Every mount of the store that is alive or of which something is left, with what it counts if `counting`. All daemons are asked at once;
    /// each has `timeout` seconds. Records of which nothing is left are forgotten.
    public func status(view: ViewName? = nil, timeout: Double = 2, counting: Bool = false) throws(GrantError) -> [MountReport] {
        let records = try store.mounts(view: view)
        let answers = inParallel(records) { record in
            Daemons.ask(record, counting ? .metrics : .status, of: store, deadline: Clock.deadline(seconds: timeout))
        }
        let remains = try store.remains(of: zip(records, answers).filter { $1.isDead }.map(\.0))
        let table = (try? MountTable.current()) ?? MountTable(entries: [])
        let devices = zip(records, answers).map { $1.isDead ? nil : $0.device(in: table) }
        let search = Holder.search(of: Set(devices.compactMap { $0 }))
        return records.indices.compactMap { index in
            let record = records[index]
            let (held, unseen) = (devices[index].flatMap { search.holders[$0] } ?? [], search.unseen)
            switch answers[index] {
            case .failure(.dead):
                guard let left = remains.first(where: { $0.record.id == record.id }) else { return nil }
                return MountReport(record: record, status: nil, silence: nil, holders: left.holders, unseen: left.unseen, isDead: true)
            case .success(.status(let status)):
                return MountReport(record: record, status: status, silence: nil, holders: held, unseen: unseen)
            case .success(.metrics(let counts)):
                return MountReport(record: record, status: counts.status, silence: nil, holders: held, unseen: unseen, counts: counts)
            case .success(.failed(let reason)), .failure(.silent(let reason)):
                return MountReport(record: record, status: nil, silence: reason, holders: held, unseen: unseen)
            case .success(.done), .success(.applied), .success(.located), .success(.progress), .success(.waits):
                return MountReport(
                    record: record, status: nil, silence: "its daemon answered something else", holders: held, unseen: unseen)
            }
        }
    }
}
