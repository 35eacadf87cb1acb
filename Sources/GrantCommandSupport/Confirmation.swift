import GrantAdministration
import GrantCommandLine
import GrantModel

/// The output about the mounts' answers.
package enum Confirmation {
    /// Names every unconfirmed mount on stderr. Returns the exit status: 0, or 3 if there is one.
    package static func exitStatus(of changes: [GrantChange], _ what: String) -> Int32 {
        for change in changes {
            for mount in change.mounts where !mount.confirmed {
                let advice =
                    mount.advice
                    ?? (mount.isDead
                        ? "grantfs revoke --kill ends them, then revoke again"
                        : !mount.processes.isEmpty
                            ? "it is confirmed as soon as that process goes on or ends: grantfs revoke --kill ends it"
                            : !mount.unforgotten.isEmpty
                                ? "it is confirmed as soon as that program goes on or ends: grantfs status names the holders"
                                : "it applies it as soon as it runs again: grantfs status shows its state")
                let mountpoint = String(decoding: mount.mountpoint, as: UTF8.self)
                Terminal.report(
                    GrantError(
                        .unconfirmed,
                        "\(what) of “\(change.grant.name)” in view “\(change.grant.view)” is recorded, "
                            + "but the mount at \(mountpoint) (pid \(mount.pid)) has not confirmed it",
                        cause: mount.reason, advice: advice))
            }
        }
        return changes.areConfirmed ? 0 : 3
    }

    package static func print(
        _ changes: [GrantChange], _ verb: String, _ what: String, arguments: ParsedArguments
    ) throws(GrantError) -> Int32 {
        try print(changes, { _ in verb }, what, arguments: arguments)
    }

    /// Prints the result for each grant: as JSON, with the members of `more`, or a line each that begins with the verb.
    package static func print(
        _ changes: [GrantChange], _ verb: (Grant) -> String, _ what: String, arguments: ParsedArguments,
        more: (GrantChange) -> [(String, JSON)] = { _ in [] }
    ) throws(GrantError) -> Int32 {
        if arguments.wantsJSON {
            try Terminal.print(JSON.array(changes.map { .object(JSON.change($0) + more($0)) }).text)
        } else {
            for change in changes { try Terminal.print(line(change, verb(change.grant))) }
        }
        return exitStatus(of: changes, what)
    }

    private static func line(_ change: GrantChange, _ verb: String) -> String {
        let name = Terminal.visible(change.grant.name.bytes)
        let grant = "\(verb) \(name) (\(change.grant.id.description.prefix(12))) in view \(Terminal.visible(change.grant.view.description))"
        let confirmed = change.mounts.filter(\.confirmed)
        guard !confirmed.isEmpty else { return grant }
        let mounts = confirmed.map { mount in
            var text = "\(Terminal.visible(mount.mountpoint)) in \(milliseconds(mount.milliseconds)) ms"
            if mount.pending > 0 { text += ", \(mount.pending) operations still stuck in the source" }
            return text
        }
        return grant + ": confirmed by " + mounts.joined(separator: "; ")
    }

    private static func milliseconds(_ value: Double) -> String {
        value.isFinite && value.magnitude < 1e12 ? String((value * 10).rounded() / 10) : "?"
    }
}
