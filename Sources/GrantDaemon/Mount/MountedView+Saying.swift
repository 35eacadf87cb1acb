import GrantCommandLine
import GrantFUSE
import GrantModel
import GrantStore
import GrantSystem
import GrantViewFS

// What a mount says in the system's log: one line where one line tells it.
extension MountedView {
    /// What every entry of this mount has.
    var fields: [SystemLog.Field] {
        [("GRANTFS_VIEW", Array(view.description.utf8)), ("GRANTFS_MOUNTPOINT", mountpoint)]
    }

    /// The mountpoint as people read it.
    var place: String { String(decoding: mountpoint, as: UTF8.self) }

    func say(_ level: SystemLog.Level, _ event: LogEvent, _ message: String, of grant: Grant? = nil) {
        var all = fields + [("GRANTFS_EVENT", Array(event.rawValue.utf8))]
        if let grant { all += [("GRANTFS_GRANT", Array(grant.id.description.utf8)), ("GRANTFS_NAME", grant.name.bytes)] }
        SystemLog.write(level, Terminal.visible(message), all)
    }

    /// Says that there are more than `said` workers that have trapped. Returns how many there are.
    func sayLostWorkers(since said: Int) -> Int {
        let lost = Session.lostWorkers
        let what = lost == 1 ? "a request was" : "\(lost) requests were"
        if lost > said { SystemLog.write(.error, "\(what) given up at \(place): a fault of grantfs, please report it", fields) }
        return lost
    }

    /// A withdrawal that was carried through.
    func say(_ outcome: WithdrawalOutcome, _ withdrawal: ViewFS.Withdrawal, of grant: Grant) {
        let what = withdrawal == .all ? "withdrew “\(grant.name)”" : "narrowed “\(grant.name)” to read-only"
        let milliseconds = (outcome.milliseconds * 10).rounded() / 10
        var message = "\(what) at \(place) in \(milliseconds) ms: \(outcome.drained) operations ended, "
        message += "\(outcome.flushedBytes) bytes flushed, \(outcome.invalidatedInodes) inodes forgotten"
        if outcome.pending > 0 { message += ", \(outcome.pending) operations stuck in the source" }
        if !outcome.processes.isEmpty {
            message += ", not confirmed, because processes get no processor to process an earlier answer: "
            message += outcome.processes.map(String.init).joined(separator: ", ")
        } else if !outcome.unforgotten.isEmpty {
            let names = outcome.unforgotten.map { String(decoding: $0, as: UTF8.self) }.joined(separator: ", ")
            message += ", not yet forgotten, because a program holds one of the kernel's locks there: \(names)"
        }
        say(outcome.pending > 0 || !outcome.isConfirmed ? .warning : .info, withdrawal == .all ? .revoked : .changed, message, of: grant)
    }
}
