import GrantModel
import GrantSystem

// Changes of grants go to the system's log as well, where users with write access to the store
// cannot remove them.
extension GrantStore {
    /// Writes entries to the system's log, once they are on disk. Call it without a lock.
    func writeToSystemLog(_ entries: [LogEntry]) {
        for entry in entries {
            var message = entry.event.rawValue
            var fields: [SystemLog.Field] = [
                ("MESSAGE_ID", Array(entry.event.messageID.utf8)), ("GRANTFS_EVENT", Array(entry.event.rawValue.utf8)),
                ("GRANTFS_STORE", Array(directory.utf8)),
                ("GRANTFS_UID", Array(String(entry.actor.uid).utf8)), ("GRANTFS_PID", Array(String(entry.actor.pid).utf8)),
                ("GRANTFS_PROGRAM", Array(entry.actor.program.utf8)),
            ]
            if let login = entry.actor.loginUID { fields.append(("GRANTFS_LOGIN_UID", Array(String(login).utf8))) }
            if let name = entry.name {
                message += " “\(VisibleText.of(name.bytes))”"
                fields.append(("GRANTFS_NAME", name.bytes))
            }
            if let grant = entry.grant {
                message += " (\(grant.description.prefix(12)))"
                fields.append(("GRANTFS_GRANT", Array(grant.description.utf8)))
            }
            if let view = entry.view {
                message += " in the view “\(VisibleText.of(view.description))”"
                fields.append(("GRANTFS_VIEW", Array(view.description.utf8)))
            }
            if !entry.detail.isEmpty { message += ": \(VisibleText.of(entry.detail))" }
            SystemLog.writeForCommand(.notice, "\(message), by \(entry.actor.description)", fields)
        }
    }
}

extension LogEvent {
    /// The journal's message id for entries of this kind (sd_journal_print(3)).
    ///
    /// For `journalctl MESSAGE_ID=…`. Released ids never change.
    var messageID: String {
        switch self {
        case .granted: "6d4b3a9a1e2c4f57a0d1b3a3f6c0e101"
        case .revoked: "6d4b3a9a1e2c4f57a0d1b3a3f6c0e102"
        case .restored: "6d4b3a9a1e2c4f57a0d1b3a3f6c0e103"
        case .removed: "6d4b3a9a1e2c4f57a0d1b3a3f6c0e104"
        case .changed: "6d4b3a9a1e2c4f57a0d1b3a3f6c0e105"
        case .expired: "6d4b3a9a1e2c4f57a0d1b3a3f6c0e106"
        case .released: "6d4b3a9a1e2c4f57a0d1b3a3f6c0e107"
        case .bookmarkReplaced: "6d4b3a9a1e2c4f57a0d1b3a3f6c0e108"
        default: "6d4b3a9a1e2c4f57a0d1b3a3f6c0e100"
        }
    }
}
