import GrantAdministration
import GrantModel

/// The objects of `--json`: keys may be added, but none is renamed.
extension JSON {
    package static func grant(_ described: GrantDescription) -> [(String, JSON)] {
        let grant = described.grant
        return identity(grant) + members("path", described.path)
            + [
                ("access", .string(grant.access.rawValue)), ("state", .string(described.state.rawValue)),
                ("bookmark", .string(described.finding.rawValue)), ("stale", .bool(described.isStale)),
                ("reason", described.reason.map { .string($0) } ?? .null),
            ] + (described.copy.map { members("copy", $0) } ?? [("copy", .null)]) + [
                ("kind", .string(grant.bookmark.document == nil ? "directory" : "document")),
                ("asDirectory", .bool(grant.bookmark.document?.form == .directory)),
                ("created", time(grant.created)), ("expires", time(grant.expires)), ("coordination", .string(grant.coordination.rawValue)),
                ("fleet", .bool(grant.fleetActivation != nil)), ("offered", .bool(grant.isOffered)),
                rules(grant.rules),
            ]
    }

    /// Lists with patterns that are not UTF-8 have their bytes in a second list, at the same indices.
    package static func rules(_ rules: GrantRules) -> (String, JSON) {
        let members = rules.lists.flatMap { name, patterns -> [(String, JSON)] in
            let texts = patterns.map { JSON.string(String(decoding: $0.text, as: UTF8.self)) }
            let hasOthers = patterns.contains { !Bytes.isUTF8($0.text) }
            return [(name, .array(texts))]
                + (hasOthers ? [(name + "Hex", .array(patterns.map { .string(Hexadecimal.text($0.text)) }))] : [])
        }
        return ("rules", .object(members))
    }

    /// A bookmark as recorded, without looking it up.
    package static func recorded(_ bookmark: Bookmark) -> (String, JSON) {
        let filesystem = bookmark.filesystem
        var keys: [(String, JSON)] = [
            ("filesystem", .string(filesystem.type)),
            ("uuid", filesystem.uuid.isEmpty ? .null : .string(Hexadecimal.text(filesystem.uuid))),
            ("handle", bookmark.handle.map { .string(Hexadecimal.text($0.bytes)) } ?? .null),
        ]
        keys += identity(bookmark.identity) + members("path", bookmark.path)
        keys += [("owner", .unsigned(UInt64(bookmark.owner))), ("made", time(bookmark.created))]
        if let origin = bookmark.origin {
            keys += [
                ("madeBy", .unsigned(UInt64(origin.madeBy))), ("boot", .string(origin.bootID)),
                ("ancestors", .array(origin.ancestors.map { .object(identity($0)) })),
            ]
        }
        keys.append(("tag", bookmark.tag.map { .string($0.description) } ?? .null))
        return ("recorded", .object(keys))
    }

    private static func identity(_ identity: FileIdentity) -> [(String, JSON)] {
        [
            ("inode", .unsigned(identity.inode)), ("generation", identity.generation.map { .unsigned(UInt64($0)) } ?? .null),
            ("born", time(identity.birthTime)),
        ]
    }

    /// A grant after a change, with the mounts' answers.
    package static func change(_ change: GrantChange) -> [(String, JSON)] {
        identity(change.grant) + [mounts(change)]
    }

    /// The first members of every object for a grant.
    package static func identity(_ grant: Grant) -> [(String, JSON)] {
        [("id", .string(grant.id.description)), ("view", .string(grant.view.description))] + members("name", grant.name.bytes)
    }

    package static func mounts(_ change: GrantChange) -> (String, JSON) {
        ("mounts", .array(change.mounts.map { .object(mount($0)) }))
    }

    package static func holder(_ holder: Holder) -> [(String, JSON)] {
        // Paths that are not UTF-8 have their bytes at the same index of a second list.
        let hasOthers = holder.paths.contains { !Bytes.isUTF8($0) }
        return [("pid", .integer(Int64(holder.pid)))] + members("command", holder.command) + [
            ("kinds", .array(holder.kinds.map { .string($0.rawValue) })),
            ("paths", .array(holder.paths.map { .string(String(decoding: $0, as: UTF8.self)) })),
        ] + (hasOthers ? [("pathsHex", .array(holder.paths.map { .string(Hexadecimal.text($0)) }))] : [])
    }

    package static func unseen(_ processes: [UnseenProcess]) -> (String, JSON) {
        ("unseen", .array(processes.map { .object([("pid", .integer(Int64($0.pid)))] + members("command", $0.command)) }))
    }

    /// `holders` and `unseen` exist for a mount whose daemon has died, `ended` also if processes of a live one were killed.
    private static func mount(_ mount: MountConfirmation) -> [(String, JSON)] {
        members("mountpoint", mount.mountpoint) + [
            ("pid", .integer(Int64(mount.pid))), ("confirmed", .bool(mount.confirmed)), ("milliseconds", .number(mount.milliseconds)),
            ("drained", .unsigned(mount.drained)), ("flushedBytes", .unsigned(mount.flushedBytes)),
            ("invalidatedInodes", .unsigned(mount.invalidatedInodes)), ("pending", .unsigned(mount.pending)),
            ("reason", mount.reason.map { .string($0) } ?? .null), ("state", .string(mount.isDead ? "dead" : "live")),
            ("unforgotten", .array(mount.unforgotten.map { .string(String(decoding: $0, as: UTF8.self)) })),
            ("processes", .array(mount.processes.map { .integer(Int64($0)) })),
        ]
            + (mount.isDead ? [("holders", .array(mount.holders.map { .object(holder($0)) })), unseen(mount.unseen)] : [])
            + (mount.isDead || !mount.ended.isEmpty ? [("ended", .array(mount.ended.map { .object(holder($0)) }))] : [])
    }
}
