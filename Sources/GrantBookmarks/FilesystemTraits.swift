/// What the types of filesystems can be relied on for: the one table behind every decision on a type.
public struct FilesystemTraits {
    /// f_fsid comes from the UUID (and the subvolume) and not from a device number.
    var hasLastingID = false
    /// Gone with the boot, or with its mount.
    var diesWithBoot = false
    /// Asking it may take for ever (a server, a daemon), so no mount of it is opened but on the way to the bookmark's own path.
    public private(set) var isRemote = false
    /// Its file handles find the same file after a remount.
    var hasLastingHandles = true

    /// `type` as in /proc/self/mountinfo.
    public init(type: String) {
        switch type.hasPrefix("fuse.") ? "fuse" : type {
        case "ext2", "ext3", "ext4", "btrfs", "bcachefs", "zfs": hasLastingID = true
        case "tmpfs":
            hasLastingID = true
            diesWithBoot = true
        case "ramfs", "devtmpfs", "rootfs", "hugetlbfs", "proc", "sysfs", "cgroup", "cgroup2", "debugfs", "tracefs", "configfs",
            "securityfs", "bpf", "devpts", "mqueue":
            diesWithBoot = true
            hasLastingHandles = false
        case "vfat", "exfat", "msdos": hasLastingHandles = false
        case "nfs", "nfs4", "cifs", "smb3", "9p", "virtiofs", "ceph", "afs", "autofs", "gfs2", "ocfs2", "lustre":
            isRemote = true
            hasLastingHandles = false
        case "fuse", "fuseblk":
            isRemote = true
            hasLastingHandles = false
        default: break
        }
    }
}
