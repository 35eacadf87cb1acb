import Glibc
import GrantModel
import GrantStore
import LinuxFS
import ViewFS

// With `-o audit` every opening is in the store's log before it is answered.
extension MountedView {
    /// Writes what is opened, batch by batch, for as long as the daemon lives, on a connection of its own. What cannot be written is refused.
    func writeAudit(_ audit: OpenAudit, keeping limit: Int) {
        var store: GrantStore?
        let directory = state.withLock { $0.store.directory }
        var isFailing = false
        while true {
            let batch = audit.next()
            do throws(GrantError) {
                if store == nil { store = try GrantStore(directory: directory, create: false, survivesPowerLoss: false) }
                try store?.append(batch.records.map { entry(of: $0, audit) }, keeping: limit)
                batch.settle(written: true)
                if isFailing { SystemLog.write(.notice, "openings can be written down again", fields) }
                isFailing = false
            } catch {
                batch.settle(written: false)
                // Its file may have been replaced: the next one is written to what is there then.
                store = nil
                if !isFailing {
                    SystemLog.write(.error, Terminal.visible("openings are refused because they cannot be written down: \(error)"), fields)
                }
                isFailing = true
            }
        }
    }

    private func entry(of record: OpenRecord, _ audit: OpenAudit) -> LogEntry {
        let grant = audit.grant(of: record.scope)
        let name = grant.flatMap { grant in state.withLock { $0.grants[grant]?.grant.name } }
        let program = String(decoding: record.program, as: UTF8.self)
        return LogEntry(
            time: Instant(nanoseconds: record.time), event: .opened, actor: Actor(uid: record.uid, pid: record.pid, program: program),
            view: view,
            grant: grant, name: name, detail: "", path: record.path, error: record.error)
    }
}
