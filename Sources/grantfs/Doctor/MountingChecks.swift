import GrantCommandSupport
import Glibc
import GrantAdministration
import GrantSystem

/// Checks whether this user can mount.
enum MountingChecks {
    static func run() -> [Finding] { [device, helper, allowOther, appArmor, mountHelper].compactMap { $0 } }

    private static var isRoot: Bool { geteuid() == 0 }

    private static var device: Finding {
        do {
            _ = try FileDescriptor.open("/dev/fuse".utf8, O_RDWR)
            return .ok("device", "/dev/fuse can be opened")
        } catch {
            switch error.rawValue {
            case ENOENT:
                return .problem("device", "there is no /dev/fuse", "modprobe fuse, or give a container the device")
            case ENODEV, ENXIO: return .problem("device", "the kernel has no FUSE for /dev/fuse", "modprobe fuse")
            case EACCES, EPERM:
                return .problem(
                    "device", "/dev/fuse may not be opened: \(error)",
                    isRoot
                        ? "the device has to be allowed by the container or the service"
                        : "as root: chmod 666 /dev/fuse, which udev does on ordinary machines")
            default: return .problem("device", "/dev/fuse cannot be opened: \(error)", "see dmesg")
            }
        }
    }

    /// Users mount through fusermount3, which is set-uid root. Root does not need it.
    private static var helper: Finding {
        guard let path = ProgramSearch.mountHelper else {
            let message = "there is no fusermount3, in PATH or /usr/bin"
            return isRoot
                ? .note("fusermount3", message + ": only root can mount", "install the package fuse3")
                : .problem("fusermount3", message, "install the package fuse3")
        }
        var (status, filesystem) = (stat(), statvfs())
        guard stat(path, &status) == 0, statvfs(path, &filesystem) == 0 else {
            return .problem("fusermount3", "\(path) cannot be inspected: \(Errno(errno))", "reinstall the package fuse3")
        }
        let isSetUID = status.st_uid == 0 && status.st_mode & S_ISUID != 0
        let isIgnored = filesystem.f_flag & UInt(ST_NOSUID) != 0
        if isSetUID, !isIgnored { return .ok("fusermount3", "\(path) is set-uid root") }
        let message =
            "\(path) " + (isSetUID ? "is on a filesystem that is mounted nosuid" : "is not set-uid root") + ", so users cannot mount"
        let advice = isSetUID ? "mount that filesystem with suid" : "as root: chown root \(path) && chmod u+s \(path)"
        return isRoot ? .note("fusermount3", message, advice) : .problem("fusermount3", message, advice)
    }

    private static var allowOther: Finding {
        if isRoot { return .ok("allow_other", "root may mount with allow_other") }
        if Mountpoint.usersMayAllowOther { return .ok("allow_other", "users may mount with allow_other") }
        return .note(
            "allow_other", "users may not mount with allow_other",
            "if other users are to use a mount: put user_allow_other into /etc/fuse.conf")
    }

    /// Ubuntu 25.04 and later have a profile that permits users to mount only at certain paths.
    private static var appArmor: Finding? {
        guard File.line(of: "/sys/module/apparmor/parameters/enabled") == "Y" else { return nil }
        let loaded = (try? File.contents(of: "/sys/kernel/security/apparmor/profiles".utf8)).map { String(decoding: $0, as: UTF8.self) }
        let isConfined = loaded.map { $0.contains(part: "fusermount3 (enforce)") } ?? (access("/etc/apparmor.d/fusermount3", F_OK) == 0)
        if !isConfined { return .ok("apparmor", "AppArmor does not confine fusermount3") }
        return .note(
            "apparmor", "AppArmor confines fusermount3: users can mount at the places of its profile only",
            "mount below a home directory, or add the place to /etc/apparmor.d/local/fusermount3")
    }

    private static var mountHelper: Finding {
        if access("/sbin/mount.grantfs", X_OK) == 0 { return .ok("mount.grantfs", "mount(8) and fstab find /sbin/mount.grantfs") }
        return .note("mount.grantfs", "mount(8) and fstab have no /sbin/mount.grantfs", "make install, as root, puts it there")
    }
}
