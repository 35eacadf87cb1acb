import GrantModel

extension GrantStore {
    /// Records a mount, so that commands ask it for confirmation from now on.
    public func register(_ mount: MountRecord) throws(GrantError) {
        try write { (database) throws(GrantError) in
            try database.query(
                """
                INSERT OR REPLACE INTO mounts (id, view, mountpoint, pid, process_start, boot, socket, since)
                VALUES (?, ?, ?, ?, ?, ?, ?, ?)
                """,
                [
                    .blob(mount.id.bytes), .blob(Array(mount.view.description.utf8)), .blob(mount.mountpoint),
                    .integer(Int64(truncatingIfNeeded: mount.pid)),
                    .integer(Int64(bitPattern: mount.processStart)), .text(mount.bootID), .text(mount.socket),
                    .integer(mount.since.nanoseconds),
                ])
        }
    }

    /// Forgets a mount; nothing happens when it is forgotten already.
    public func unregister(_ id: GrantID) throws(GrantError) {
        try write { (database) throws(GrantError) in
            try database.query("DELETE FROM mounts WHERE id = ?", [.blob(id.bytes)])
        }
    }

    /// The recorded mounts, of one view or of all, oldest first. Some may be of processes that have died.
    public func mounts(view: ViewName? = nil) throws(GrantError) -> [MountRecord] {
        try read { (database) throws(GrantError) in
            var result: [MountRecord] = []
            let condition = view == nil ? "" : "WHERE view = ?"
            let parameters: [Value] = view.map { [.blob(Array($0.description.utf8))] } ?? []
            try database.query(
                """
                SELECT id, view, mountpoint, pid, process_start, boot, socket, since FROM mounts \(condition) ORDER BY since, id
                """, parameters
            ) { (row) throws(GrantError) in
                guard let id = GrantID(bytes: row.blob(0)), let view = try? ViewName(row.text(1)) else {
                    throw StoreFailure.damaged(database.path, "a mount's record makes no sense")
                }
                result.append(
                    MountRecord(
                        id: id, view: view, mountpoint: row.blob(2), pid: Int32(truncatingIfNeeded: row.integer(3)),
                        processStart: UInt64(bitPattern: row.integer(4)), bootID: row.text(5), socket: row.text(6),
                        since: Instant(nanoseconds: row.integer(7))))
            }
            return result
        }
    }
}
