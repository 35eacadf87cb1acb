import GrantModel
import GrantSystem

extension GrantStore {
    private static let mountColumns = """
        id, view, mountpoint, pid, process_start, boot, socket, since, device, mount_number, control_inode, control_changed, control_instance,
        generation
        """

    /// Records a mount, so that commands ask it to confirm changes.
    ///
    /// Called again once its connection is known.
    public func register(_ mount: MountRecord) throws(GrantError) {
        try write { (database) throws(GrantError) in
            try database.query(
                """
                INSERT OR REPLACE INTO mounts (\(GrantStore.mountColumns)) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
                """,
                [
                    .blob(mount.id.bytes), .blob(Array(mount.shown.recorded.utf8)), .blob(mount.mountpoint),
                    .integer(Int64(truncatingIfNeeded: mount.pid)),
                    .integer(Int64(bitPattern: mount.processStart)), .text(mount.bootID), .text(mount.socket),
                    .integer(mount.since.nanoseconds),
                ] + GrantStore.values(of: mount.connection))
        }
    }

    /// Removes the record of a mount, if there is one.
    public func unregister(_ id: GrantID) throws(GrantError) {
        try write { (database) throws(GrantError) in
            try database.query("DELETE FROM mounts WHERE id = ?", [.blob(id.bytes)])
        }
    }

    /// Returns the recorded mounts that show a view, or all, oldest first.
    ///
    /// The processes of some may have died.
    public func mounts(view: ViewName? = nil) throws(GrantError) -> [MountRecord] {
        try read { (database) throws(GrantError) in
            var result: [MountRecord] = []
            try database.query(
                """
                SELECT \(GrantStore.mountColumns) FROM mounts ORDER BY since, id
                """
            ) { (row) throws(GrantError) in
                guard let id = GrantID(bytes: row.blob(0)), let shown = ShownViews(recorded: row.text(1)) else {
                    throw StoreFailure.damaged(database.path, "a mount's record makes no sense")
                }
                if let view, !shown.shows(view) { return }
                result.append(
                    MountRecord(
                        id: id, shown: shown, mountpoint: row.blob(2), pid: Int32(truncatingIfNeeded: row.integer(3)),
                        processStart: UInt64(bitPattern: row.integer(4)), bootID: row.text(5), socket: row.text(6),
                        since: Instant(nanoseconds: row.integer(7)), connection: GrantStore.connection(from: row)))
            }
            return result
        }
    }

    private static func values(of connection: FUSEConnection?) -> [Value] {
        let device = connection.map { Int64(truncatingIfNeeded: $0.device.major) << 32 | Int64(truncatingIfNeeded: $0.device.minor) }
        return [
            Value(device), Value(connection?.mount.map { Int64(bitPattern: $0) }),
            Value(connection?.entry.map { Int64(bitPattern: $0.inode) }), Value(connection?.entry?.changed),
            Value(connection?.entry.map { Int64(bitPattern: $0.instance) }),
            Value(connection?.generation.map { Int64(truncatingIfNeeded: $0) }),
        ]
    }

    private static func connection(from row: borrowing Statement) -> FUSEConnection? {
        guard let device = row.optionalInteger(8) else { return nil }
        var entry: FUSEConnection.Entry?
        if let inode = row.optionalInteger(10), let changed = row.optionalInteger(11), let instance = row.optionalInteger(12) {
            entry = FUSEConnection.Entry(inode: UInt64(bitPattern: inode), changed: changed, instance: UInt64(bitPattern: instance))
        }
        return FUSEConnection(
            device: DeviceNumber(major: UInt32(truncatingIfNeeded: device >> 32), minor: UInt32(truncatingIfNeeded: device)),
            mount: row.optionalInteger(9).map { UInt64(bitPattern: $0) }, entry: entry,
            generation: row.optionalInteger(13).map { UInt32(truncatingIfNeeded: $0) })
    }
}
