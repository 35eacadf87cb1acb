import GrantCommandSupport
import Glibc
import GrantSystem

/// Checks the kernel's features. Each is tried, except those that only show in a mount: these
/// depend on the version.
enum KernelChecks {
    static func run() -> [Finding] {
        let release = KernelRelease.current
        var findings = [release.map { version(of: $0) } ?? .note("kernel", "the kernel's version is not known")]
        findings.append(beneath)
        findings.append(changes)
        findings.append(mountNumbers)
        findings.append(handles)
        if let release { findings.append(identities(of: release)) }
        if let requestTimeout { findings.append(requestTimeout) }
        return findings
    }

    /// What a kernel of that version lacks: docs/conformance.md, “Other kernels”.
    static func version(of release: (major: Int, minor: Int)) -> Finding {
        let lacks = differences.filter { release < $0.until && release >= $0.from }.map(\.meaning)
        let name = "Linux \(release.major).\(release.minor)"
        if lacks.isEmpty { return .ok("kernel", name) }
        return .note("kernel", name + ": " + lacks.joined(separator: "; "), "another kernel, where that matters")
    }

    private static let differences: [(from: (Int, Int), until: (Int, Int), meaning: String)] = [
        ((0, 0), (5, 11), "small writes take twice the requests (FUSE_HANDLE_KILLPRIV_V2 is of 5.11)"),
        ((0, 0), (6, 1), "locks take several requests each, also if no other process has the file open (6.1)"),
        (
            (0, 0), (6, 18),
            "under cache=exclusive a withdrawal tells the kernel of each known file by itself, which takes seconds for hundreds of thousands (FUSE_NOTIFY_PRUNE is of 6.18)"
        ),
        ((0, 0), (6, 16), "under cache=exclusive the kernel looks names up again after a minute (FUSE_NOTIFY_INC_EPOCH is of 6.16)"),
        ((0, 0), (6, 2), "names are invalidated singly (FUSE_EXPIRE_ONLY is of 6.2)"),
        (
            (0, 0), (6, 6),
            "the time of birth is not shown, and files opened past the cache cannot be mapped shared (both are of 6.6)"
        ),
        (
            (5, 14), (6, 9),
            "a program that calls madvise with MADV_POPULATE_READ or MADV_POPULATE_WRITE for a mapping of a withdrawn grant stays in that call "
                + "until it is killed (6.9)"
        ),
        (
            (6, 19), (.max, 0),
            "sendfile and splice below a withdrawn grant, and every read where the view is mounted with cache=exclusive, are refused with EIO instead of EACCES"
        ),
    ]

    /// openat2(2), which entering a granted directory needs.
    private static var beneath: Finding {
        do {
            let root = try FileDescriptor.open("/".utf8, OpenFlags.path | O_DIRECTORY)
            _ = try FileDescriptor.openBeneath(root.number, ".".utf8, OpenFlags.path | O_DIRECTORY)
            return .ok("openat2", "directories can be entered without leaving the granted one")
        } catch {
            return .problem(
                "openat2", "openat2 does not work: \(error)", "Linux 5.6 or later, and a container or service that allows the call")
        }
    }

    private static var changes: Finding {
        do {
            _ = try ChangeWatch(.names)
            return .ok("changes", "changes beside a mount are told by fanotify")
        } catch {
            let means = "where inotify watches are left, else within a second"
            switch error.rawValue {
            case EPERM: return .note("changes", "without CAP_SYS_ADMIN changes beside a mount are told by inotify, \(means)")
            case ENOSYS, EINVAL:
                return .note(
                    "changes", "the kernel's fanotify gives no names: changes beside a mount show by inotify, \(means)",
                    "Linux 5.17 or later")
            default:
                return .note(
                    "changes", "fanotify does not work: \(error). Changes beside a mount show by inotify, \(means)")
            }
        }
    }

    private static var mountNumbers: Finding {
        // No mount has this id, and a kernel with the call reports that.
        if MountNumber.isThere(UInt64.max >> 1) == false {
            return .ok("mounts", "mounts have numbers that are never used again")
        }
        return .note(
            "mounts", "mounts have no numbers of their own: a grant after “grantfs release” may take longer to return",
            "Linux 6.8 or later")
    }

    /// How bookmarks identify filesystems. ext4, XFS and btrfs have older calls of their own (`filesystemUUID`).
    static func identities(of release: (major: Int, minor: Int)) -> Finding {
        if release >= (6, 9) { return .ok("identities", "filesystems have lasting identities") }
        return .note(
            "identities",
            "filesystems other than ext4, XFS and btrfs do not tell their UUID (FS_IOC_GETFSUUID is of 6.9): without a link in /dev/disk/by-uuid a "
                + "directory on one of them counts as unavailable after the next boot",
            "Linux 6.9 or later, if such filesystems are granted. “grantfs repair --all --recorded” shows the bookmarks")
    }

    private static var handles: Finding {
        // CAP_DAC_READ_SEARCH, see capabilities(7).
        if ProcessCapability.has(2) { return .ok("handles", "directories can be found by their handles") }
        return .note("handles", "without CAP_DAC_READ_SEARCH a directory that is moved while no view shows it may not be found again")
    }

    /// A kernel that times out requests aborts the whole connection, with all other grants.
    private static var requestTimeout: Finding? {
        let seconds = ["default_request_timeout", "max_request_timeout"].compactMap {
            File.line(of: "/proc/sys/fs/fuse/" + $0).flatMap { Int($0) }
        }
        if seconds.isEmpty { return nil }
        guard let timeout = seconds.filter({ $0 > 0 }).min() else {
            return .ok("timeout", "the kernel waits for requests as long as they take")
        }
        return .problem(
            "timeout",
            "the kernel ends a mount in which a request takes longer than \(timeout) seconds: one granted filesystem that hangs takes all with it",
            "sysctl fs.fuse.default_request_timeout=0 fs.fuse.max_request_timeout=0")
    }
}
