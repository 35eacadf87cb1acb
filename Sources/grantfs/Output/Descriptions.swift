import GrantKit
import GrantModel

/// The documents of `--json`: keys are added, none is renamed.
extension JSON {
    static func grant(_ described: GrantDescription) -> [(String, JSON)] {
        let grant = described.grant
        return [("id", .string(grant.id.description)), ("view", .string(grant.view.description))]
            + members("name", grant.name.bytes) + members("path", described.path)
            + [
                ("access", .string(grant.access.rawValue)), ("state", .string(described.state.rawValue)),
                ("bookmark", .string(described.finding.rawValue)), ("stale", .bool(described.isStale)),
                ("reason", described.reason.map { .string($0) } ?? .null),
                ("created", time(grant.created)), ("expires", time(grant.expires)),
            ]
    }

    /// A grant after a change, with what the mounts said.
    static func change(_ change: GrantChange) -> [(String, JSON)] {
        [("id", .string(change.grant.id.description)), ("view", .string(change.grant.view.description))]
            + members("name", change.grant.name.bytes) + [mounts(change)]
    }

    static func mounts(_ change: GrantChange) -> (String, JSON) {
        ("mounts", .array(change.mounts.map { .object(mount($0)) }))
    }

    private static func mount(_ mount: MountConfirmation) -> [(String, JSON)] {
        members("mountpoint", mount.mountpoint) + [
            ("pid", .integer(Int64(mount.pid))), ("confirmed", .bool(mount.confirmed)), ("milliseconds", .number(mount.milliseconds)),
            ("drained", .unsigned(mount.drained)), ("flushedBytes", .unsigned(mount.flushedBytes)),
            ("invalidatedInodes", .unsigned(mount.invalidatedInodes)), ("pending", .unsigned(mount.pending)),
            ("reason", mount.reason.map { .string($0) } ?? .null),
        ]
    }
}
