import CGrantSystem
import Glibc

extension MountTable {
    /// The current mounts, always including the mount that holds the root directory.
    ///
    /// After chroot(2) into a plain directory that directory may not be a mountpoint.
    /// /proc/self/mountinfo lists only mounts below the root directory (fs/proc_namespace.c,
    /// show_mountinfo). So it omits the mount that holds most of such a tree.
    ///
    /// That entry has the mountpoint `/` and an empty `root`, because nothing tells which directory
    /// of the filesystem the root is. It is missing if the table of process 1 does not have it
    /// either and the kernel does not tell it to this user.
    public static func currentWithRoot() throws(Errno) -> MountTable {
        let table = try current()
        guard !table.entries.contains(where: { $0.mountpoint == [0x2F] }), let root = rootOutside() else { return table }
        return MountTable(entries: [root] + table.entries)
    }

    private static func rootOutside() -> MountEntry? {
        guard let place = try? MountIdentity.withoutAsking("/") else { return nil }
        // The first process's root may be further up. In another mount namespace its mounts have
        // other numbers, and the same devices.
        let others = (try? File.contents(of: "/proc/1/mountinfo".utf8)).map { MountTable(parsing: $0).entries } ?? []
        if let entry = others.first(where: { $0.id == place.id }) ?? others.first(where: { $0.device == place.device }) {
            return MountEntry(
                root: place, device: entry.device, options: entry.options, type: entry.type, source: entry.source,
                superOptions: entry.superOptions)
        }
        var told = clinux_mount_filesystem()
        guard let number = place.number, clinux_mount_filesystem_of(number, &told) == 0 else { return nil }
        return MountEntry(
            root: place, device: DeviceNumber(major: told.major, minor: told.minor), options: "",
            type: String(decoding: bytes(of: told.type), as: UTF8.self), source: bytes(of: told.source), superOptions: "")
    }

    /// The bytes up to the first 0.
    private static func bytes<Words>(of words: Words) -> [UInt8] { withUnsafeBytes(of: words) { Array($0.prefix { $0 != 0 }) } }
}

extension MountEntry {
    fileprivate init(
        root place: MountIdentity, device: DeviceNumber, options: String, type: String, source: [UInt8], superOptions: String
    ) {
        self.init(
            id: place.id, parent: 0, major: device.major, minor: device.minor, root: [], mountpoint: [0x2F], options: options, type: type,
            source: source, superOptions: superOptions)
    }
}
