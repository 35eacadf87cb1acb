import Glibc

/// A condition on an argument: these bits have this value.
struct ArgumentCondition {
    let argument: UInt32
    let mask: UInt64
    let value: UInt64
}

/// The calls of a daemon: files, its own memory and threads, local sockets. None of them starts a program, inspects another process,
/// reaches a network, or changes the kernel.
enum SystemCalls {
    static let allowed = files + attributes + watching + memory + threads + signals + identity + waiting + sockets + clocks

    private static let files = words(
        """
        read write readv writev pread64 pwrite64 preadv pwritev preadv2 pwritev2 open openat openat2 creat close close_range dup
        dup2 dup3 fcntl ioctl lseek access faccessat faccessat2 getdents64 getcwd chdir fchdir mkdir mkdirat mknod mknodat rmdir
        unlink unlinkat rename renameat renameat2 link linkat symlink symlinkat readlink readlinkat truncate ftruncate fallocate
        fsync fdatasync sync_file_range syncfs copy_file_range sendfile splice tee vmsplice flock fadvise64 readahead
        name_to_handle_at open_by_handle_at umount2 statmount listmount umask pipe pipe2
        """)

    /// Calls that may be newer than libseccomp. From number 424 on they are the same on every architecture (linux,
    /// scripts/syscall.tbl).
    static let newer: [String: Int32] = [
        "open_tree": 428, "mount_setattr": 442, "futex_waitv": 449, "fchmodat2": 452, "futex_wake": 454,
        "futex_wait": 455, "futex_requeue": 456, "statmount": 457,
        "listmount": 458, "setxattrat": 463, "getxattrat": 464, "listxattrat": 465, "removexattrat": 466, "file_getattr": 468,
        "file_setattr": 469,
    ]

    /// For a mount that shows other owners: a copy of a mount, which has no place, and its owners.
    static let copyingMounts = words("open_tree mount_setattr")

    private static let attributes = words(
        """
        stat lstat fstat newfstatat statx statfs fstatfs chmod fchmod fchmodat fchmodat2 chown fchown lchown fchownat utimensat
        getxattr lgetxattr fgetxattr setxattr lsetxattr fsetxattr listxattr llistxattr flistxattr removexattr lremovexattr
        fremovexattr setxattrat getxattrat listxattrat removexattrat file_getattr file_setattr
        """)

    private static let watching = words(
        """
        fanotify_init fanotify_mark inotify_init1 inotify_add_watch inotify_rm_watch
        """)

    private static let memory = words(
        """
        mmap munmap mprotect mremap madvise msync mincore brk membarrier mlock munlock
        """)

    private static let threads = words(
        """
        futex futex_wake futex_wait futex_requeue futex_waitv set_robust_list get_robust_list rseq set_tid_address arch_prctl exit
        exit_group gettid getpid getppid sched_yield sched_getaffinity sched_setaffinity sched_getparam sched_getscheduler
        sched_getattr sched_setattr sched_get_priority_max sched_get_priority_min getcpu wait4 waitid
        """)

    private static let signals = words(
        """
        rt_sigaction rt_sigprocmask rt_sigreturn rt_sigtimedwait rt_sigpending rt_sigsuspend sigaltstack restart_syscall kill
        tgkill tkill pidfd_open
        """)

    /// Capabilities can be lowered and raised again within the permitted set, never gained.
    private static let identity = words(
        """
        getuid geteuid getgid getegid getgroups getresuid getresgid setfsuid setfsgid setgroups capget capset getpgrp getpgid
        getsid prctl getrlimit setrlimit prlimit64 getrusage sysinfo uname getrandom
        """)

    private static let waiting = words(
        """
        poll ppoll select pselect6 epoll_create1 epoll_ctl epoll_wait epoll_pwait epoll_pwait2 eventfd2 signalfd4 timerfd_create
        timerfd_settime timerfd_gettime pause
        """)

    private static let sockets = words(
        """
        bind listen accept accept4 connect sendto sendmsg sendmmsg recvfrom recvmsg recvmmsg getsockopt setsockopt getsockname
        getpeername shutdown
        """)

    private static let clocks = words(
        """
        clock_gettime clock_getres clock_nanosleep nanosleep gettimeofday time times
        """)

    /// Splits at white space.
    private static func words(_ text: String) -> [String] { text.split(whereSeparator: \.isWhitespace).map(String.init) }

    // linux/sched.h
    private static let (cloneFS, cloneThread): (UInt64, UInt64) = (0x200, 0x10000)

    /// Each call is allowed if one of its conditions holds.
    static let conditional: [(name: String, conditions: [ArgumentCondition])] = [
        // New threads, no new processes.
        ("clone", [ArgumentCondition(argument: 0, mask: cloneThread, value: cloneThread)]),
        // A thread's own umask, and no namespace.
        ("unshare", [ArgumentCondition(argument: 0, mask: 0xffff_ffff, value: cloneFS)]),
        ("socket", [ArgumentCondition(argument: 0, mask: 0xffff_ffff, value: UInt64(AF_UNIX))]),
        ("socketpair", [ArgumentCondition(argument: 0, mask: 0xffff_ffff, value: UInt64(AF_UNIX))]),
    ]
}
