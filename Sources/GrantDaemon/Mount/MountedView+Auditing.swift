import Glibc
import GrantCommandLine
import GrantModel
import GrantStore
import GrantSystem
import GrantViewFS

// With `-o audit` every opening is in the store's log before it is answered, and every change before it is made.
extension MountedView {
    /// Writes the audited operations, batch by batch, for as long as the daemon lives, on a
    /// connection of its own. An operation that cannot be written is refused.
    func writeAudit(_ audit: AuditTrail, keeping limit: Int) {
        var store: GrantStore?
        let directory = state.withLock { $0.store.directory }
        var isFailing = false
        while true {
            let batch = audit.next()
            do throws(GrantError) {
                if store == nil { store = try GrantStore(directory: directory, create: false, survivesPowerLoss: false) }
                let unwritten = batch.unwritten.map { scope, count in
                    let (view, grant, name) = granted(by: scope, audit)
                    return GrantStore.DroppedEntries(view: view, grant: grant, name: name, count: count)
                }
                let numbers = try store?.append(
                    batch.records.map { entry(of: $0, audit) }, results: batch.results, dropped: unwritten, keeping: limit, by: actor)
                batch.settle(numbers)
                if isFailing { SystemLog.write(.notice, "openings and changes can be written down again", fields) }
                isFailing = false
            } catch {
                batch.settle(nil)
                // Its file may have been replaced: the next one is written to the new file.
                store = nil
                if !isFailing {
                    SystemLog.write(
                        .error, Terminal.visible("openings and changes are refused because they cannot be written down: \(error)"), fields)
                }
                isFailing = true
            }
        }
    }

    private func granted(by scope: UInt32, _ audit: AuditTrail) -> (ViewName, GrantID?, GrantName?) {
        let id = audit.grant(of: scope)
        let grant = id.flatMap { id in state.withLock { $0.grants[id]?.grant } }
        return (grant?.view ?? view, id, grant?.name)
    }

    private func entry(of record: AuditRecord, _ audit: AuditTrail) -> LogEntry {
        let (view, grant, name) = granted(by: record.scope, audit)
        let program = String(decoding: record.program, as: UTF8.self)
        return LogEntry(
            time: Instant(nanoseconds: record.time), event: LogEvent(record.act),
            actor: Actor(uid: record.uid, pid: record.pid, program: program), view: view, grant: grant, name: name, detail: record.detail,
            path: record.path, error: record.error, newPath: record.newPath, access: record.access)
    }
}

extension LogEvent {
    /// The two have the same words.
    init(_ act: AuditedAct) {
        self =
            switch act {
            case .opened: .opened
            case .unlinked: .unlinked
            case .directoryMade: .directoryMade
            case .directoryRemoved: .directoryRemoved
            case .renamed: .renamed
            case .linked: .linked
            case .symlinkMade: .symlinkMade
            case .nodeMade: .nodeMade
            case .modeSet: .modeSet
            case .ownerSet: .ownerSet
            case .truncated: .truncated
            case .timesSet: .timesSet
            case .attributeSet: .attributeSet
            case .attributeRemoved: .attributeRemoved
            case .flagsSet: .flagsSet
            }
    }
}
