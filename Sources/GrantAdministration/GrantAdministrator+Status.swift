import Control
import GrantModel
import GrantStore
import LinuxFS

/// A live mount, and who holds something of it.
public struct MountReport: Sendable {
    public let record: MountRecord
    /// nil when the daemon did not answer; `silence` then says why.
    public let status: MountStatus?
    public let silence: String?
    public let holders: [Holder]
    /// What it counts, where that was asked for.
    public var counts: MountMetrics?
}

extension GrantAdministrator {
    /// The mountpoints of this store's mounts that stand and whose daemon has ended, and of every other dead view that this user may look at.
    public func deadMounts() throws(GrantError) -> [[UInt8]] {
        let records = try store.mounts()
        let entries = try Placement.currentTable().entries.filter { $0.type == GrantAdministrator.filesystemType }
        let paths = Set(entries.map(\.mountpoint)).sorted { $0.lexicographicallyPrecedes($1) }
        let isDead = inParallel(paths) { path in
            if records.contains(where: { $0.mountpoint == path && $0.process.isRunning }) { return false }
            return (try? Mountpoint(path))?.isDead() ?? false
        }
        return zip(paths, isDead).filter(\.1).map(\.0)
    }

    /// Every live mount of the store, with what it counts if `counting`. All daemons are asked at once; each has `timeout` seconds.
    public func status(view: ViewName? = nil, timeout: Double = 2, counting: Bool = false) throws(GrantError) -> [MountReport] {
        let records = try store.mounts(view: view)
        let directory = store.runDirectory
        let answers = inParallel(records) { record in
            Daemons.ask(record, counting ? .metrics : .status, in: directory, deadline: Clock.deadline(seconds: timeout))
        }
        let table = try? MountTable.current()
        let devices = records.map { record -> DeviceNumber? in
            let entry = table?.entries.last { $0.mountpoint == record.mountpoint && $0.type == GrantAdministrator.filesystemType }
            return entry.map { DeviceNumber(major: $0.major, minor: $0.minor) }
        }
        let holders = Holder.all(of: Set(devices.compactMap { $0 }))
        return records.indices.compactMap { index in
            let held = devices[index].flatMap { holders[$0] } ?? []
            switch answers[index] {
            case .failure(.dead): return nil
            case .success(.status(let status)):
                return MountReport(record: records[index], status: status, silence: nil, holders: held)
            case .success(.metrics(let counts)):
                return MountReport(record: records[index], status: counts.status, silence: nil, holders: held, counts: counts)
            case .success(.failed(let reason)), .failure(.silent(let reason)):
                return MountReport(record: records[index], status: nil, silence: reason, holders: held)
            case .success(.done), .success(.applied), .success(.located), .success(.progress), .success(.waits):
                return MountReport(record: records[index], status: nil, silence: "its daemon answered something else", holders: held)
            }
        }
    }
}
