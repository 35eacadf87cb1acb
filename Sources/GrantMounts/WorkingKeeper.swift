import Glibc
import GrantModel
import GrantStore
import GrantSystem

/// The process beside a daemon that drops the kernel's cache once the daemon has died (`grantfs
/// keeper`).
public enum WorkingKeeper {
    /// The name of such a process as long as it may have something to do.
    public static let name = "grantfs-keeper"
    /// Its name when only listings are left that programs keep locked. A process that waits for it
    /// need not wait for them.
    public static let nameAtTheEnd = "grantfs-kept"

    /// Returns the keeper of a mount whose daemon has died. It returns nil if the keeper has done
    /// its work or was killed. A process of another user, which could look like a keeper, is
    /// ignored.
    static func of(_ record: MountRecord) -> Int32? {
        guard let connection = record.connection else { return nil }
        let mount = "\(connection.device.major):\(connection.device.minor):"
        let pids = ((try? DirectoryNames.of("/proc".utf8)) ?? []).compactMap { Int32(String(decoding: $0, as: UTF8.self)) }
        return pids.first { pid in
            guard ProcessName.of(pid) == Array(name.utf8), isOwn(pid), !ProcessState.isOver(pid),
                let text = try? File.contents(of: "/proc/\(pid)/cmdline".utf8)
            else { return false }
            let words = text.split(separator: 0).map { String(decoding: $0, as: UTF8.self) }
            guard words.count > 3, let daemons = words.last, words[words.count - 2].hasPrefix(mount) else { return false }
            return daemons.split(separator: ",").contains { Int32($0) == record.pid }
        }
    }

    private static func isOwn(_ pid: Int32) -> Bool {
        var status = stat()
        return stat("/proc/\(pid)", &status) == 0 && status.st_uid == geteuid()
    }

    /// Waits until the keepers of these mounts have done their work, at most until `deadline`. Returns those that have not, by record.
    static func await(_ records: [MountRecord], until deadline: Int64) -> [GrantID: Int32] {
        while true {
            let working = records.compactMap { record in of(record).map { (record.id, $0) } }
            if working.isEmpty || Clock.monotonic >= deadline { return Dictionary(working, uniquingKeysWith: { first, _ in first }) }
            usleep(10_000)
        }
    }
}
