/// The properties of filesystem types: the one table behind every decision on a type.
public struct FilesystemTraits {
    /// Whether f_fsid is derived from the UUID (and the subvolume) and not from a device number.
    var hasLastingID = false
    /// Whether it does not outlive the boot, or its mount.
    var diesWithBoot = false
    /// Whether it may hang (a server, a daemon).
    ///
    /// Such a mount is only opened on the path of a bookmark of its own.
    public private(set) var isRemote = false
    /// Whether its file handles are valid after a remount.
    var hasLastingHandles = true

    /// `type` is as in /proc/self/mountinfo.
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
