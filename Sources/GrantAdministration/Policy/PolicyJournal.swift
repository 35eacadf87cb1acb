import GrantModel
import GrantStore
import GrantSystem

/// The policy's entries in the system's log.
enum PolicyJournal {
    /// The message id of all refusals: `journalctl MESSAGE_ID=…`.
    static let refusal = "a4a4c1c0f0f94c53a1f0f6c3d7f2b6e5"

    /// Logs that a user was not permitted to grant something.
    static func refused(_ path: [UInt8], view: ViewName, access: Access, _ verdict: PolicyJudge.Verdict, by actor: Actor) {
        var fields: [SystemLog.Field] = [
            ("MESSAGE_ID", Array(refusal.utf8)), ("GRANTFS_EVENT", Array("refused".utf8)), ("GRANTFS_DIRECTORY", path),
            ("GRANTFS_VIEW", Array(view.description.utf8)), ("GRANTFS_ACCESS", Array(access.rawValue.utf8)),
            ("GRANTFS_UID", Array(String(actor.uid).utf8)), ("GRANTFS_PID", Array(String(actor.pid).utf8)),
            ("GRANTFS_PROGRAM", Array(actor.program.utf8)),
        ]
        if let login = actor.loginUID { fields.append(("GRANTFS_LOGIN_UID", Array(String(login).utf8))) }
        if let place = verdict.place { fields.append(("GRANTFS_POLICY", Array(place.utf8))) }
        SystemLog.writeForCommand(
            .notice,
            "refused to grant \(VisibleText.of(path)) to the view “\(VisibleText.of(view.description))”: \(VisibleText.of(verdict.reason)), "
                + "by \(actor.description)", fields)
    }
}
