import CGrantSeccomp
import CGrantSystem
import Glibc
import GrantSystem

/// The seccomp(2) filter that reports the names a program looks up, by libseccomp.
///
/// It refuses nothing. Programs of other architectures than the native one are not reported.
public enum LookupFilter {
    /// AT_EMPTY_PATH of newfstatat(2) and statx(2), which the C library uses for descriptors.
    private static let emptyPath: UInt64 = 0x1000
    /// The argument with the flags of such a call.
    private static let flagsOfStatus: [String: UInt32] = ["newfstatat": 3, "statx": 2]

    /// Returns the filter as the kernel takes it, in an anonymous file.
    public static func file() throws(Errno) -> FileDescriptor {
        guard let filter = seccomp_init(cseccomp_allow) else { throw Errno(ENOMEM) }
        defer { seccomp_release(filter) }
        try check(seccomp_attr_set(filter, SCMP_FLTATR_ACT_BADARCH, cseccomp_allow))
        // A binary tree, because every other call passes the filter as well.
        _ = seccomp_attr_set(filter, SCMP_FLTATR_CTL_OPTIMIZE, 2)
        for (number, call) in LookupCall.all {
            let conditions = flagsOfStatus[call.name].map {
                [scmp_arg_cmp(arg: $0, op: SCMP_CMP_MASKED_EQ, datum_a: emptyPath, datum_b: 0)]
            }
            try check(seccomp_rule_add_array(filter, cseccomp_notify, number, UInt32(conditions?.count ?? 0), conditions ?? []))
        }
        let file = try MemoryFile.of([])
        try check(seccomp_export_bpf(filter, file.number))
        return file
    }

    /// Loads the filter into the calling thread, for the program that it becomes.
    ///
    /// From now on each call of the list waits until the listener has answered it.
    ///
    /// - Throws: EBUSY if another filter of the thread has a listener, ENOSYS or EINVAL if the kernel has none.
    public static func load(_ filter: [UInt8]) throws(Errno) -> FileDescriptor {
        FileDescriptor(owning: try Errno.check(clinux_filter_load(filter, filter.count)))
    }

    private static func check(_ result: Int32) throws(Errno) {
        if result < 0 { throw Errno(-result) }
    }
}

/// A system call that looks names up.
struct LookupCall: Sendable {
    /// One name among the arguments.
    struct Name: Sendable {
        /// The argument with the descriptor that a relative name begins at, or nil for the working directory.
        var directory: Int?
        let path: Int
    }

    /// How to tell whether the call would change something.
    enum Intent: Sendable {
        case read
        case change
        /// Flags of open(2), in this argument.
        case flags(Int)
        /// The address of a struct open_how, openat2(2), in this argument.
        case how(Int)
    }

    let name: String
    let names: [Name]
    let intent: Intent

    /// By the numbers of this architecture. Calls that it does not have are left out.
    static let all: [Int32: LookupCall] = {
        var result: [Int32: LookupCall] = [:]
        for call in list {
            let number = seccomp_syscall_resolve_name(call.name)
            if number >= 0 { result[number] = call }
        }
        return result
    }()

    private static let list: [LookupCall] =
        [
            LookupCall(name: "open", names: [Name(path: 0)], intent: .flags(1)),
            LookupCall(name: "openat", names: [Name(directory: 0, path: 1)], intent: .flags(2)),
            LookupCall(name: "openat2", names: [Name(directory: 0, path: 1)], intent: .how(2)),
            LookupCall(name: "rename", names: [Name(path: 0), Name(path: 1)], intent: .change),
            LookupCall(name: "link", names: [Name(path: 0), Name(path: 1)], intent: .change),
            LookupCall(name: "symlink", names: [Name(path: 1)], intent: .change),
            LookupCall(name: "symlinkat", names: [Name(directory: 1, path: 2)], intent: .change),
        ] + calls("stat lstat access readlink execve chdir statfs getxattr lgetxattr listxattr llistxattr", .read)
        + calls("newfstatat statx faccessat faccessat2 readlinkat execveat", .read, directory: 0)
        + calls("creat mkdir rmdir unlink mknod chmod chown lchown truncate utime utimes setxattr lsetxattr", .change)
        + calls("removexattr lremovexattr", .change)
        + calls("mkdirat unlinkat mknodat fchmodat fchmodat2 fchownat utimensat futimesat", .change, directory: 0)
        + ["renameat", "renameat2", "linkat"].map {
            LookupCall(name: $0, names: [Name(directory: 0, path: 1), Name(directory: 2, path: 3)], intent: .change)
        }

    private static func calls(_ names: String, _ intent: Intent, directory: Int? = nil) -> [LookupCall] {
        names.split(separator: " ").map {
            LookupCall(name: String($0), names: [Name(directory: directory, path: directory == nil ? 0 : 1)], intent: intent)
        }
    }
}
