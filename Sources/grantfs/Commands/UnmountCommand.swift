import Glibc
import GrantAdministration
import GrantModel
import GrantStore
import LinuxFS

/// `grantfs unmount`
enum UnmountCommand {
    static let declaration = CommandDeclaration(
        "unmount", "Unmounts a view, as fusermount3 -u or umount do.",
        operands: [OperandDeclaration("MOUNTPOINT")],
        run: run)

    private static func run(_ arguments: ParsedArguments) throws(GrantError) -> Int32 {
        let mountpoint = try Mountpoint(arguments.operands[0])
        guard let entry = try mountpoint.mounted(), entry.type == GrantAdministrator.filesystemType else {
            throw GrantError(.mountFailed, "\(mountpoint.shown) cannot be unmounted", cause: "no view is mounted there")
        }
        let records = try? arguments.openStoreIfThere()?.mounts().filter { record in
            // One that was detached from here before, while it is held, does not end now.
            record.mountpoint == mountpoint.path && record.connection.map { $0.device == entry.device } ?? true
        }
        for record in records ?? [] { record.cutIfOver() }
        try mountpoint.unmount()
        awaitEnd(of: records ?? [])
        return 0
    }

    /// The daemon ends as soon as it notices. Waiting for that lets the caller mount again, or take the store away, at once.
    static func awaitEnd(of records: [MountRecord]) {
        for _ in 0..<200 where records.contains(where: { $0.process.isRunning }) { usleep(10_000) }
    }
}
