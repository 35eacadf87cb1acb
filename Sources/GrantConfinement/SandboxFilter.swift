import CGrantSystem
import CGrantSeccomp
import Glibc
import GrantSystem

/// The seccomp(2) filter of a sandbox, by libseccomp: system calls that namespaces do not confine.
/// It lists the refused calls (EPERM), because any program must run there.
public enum SandboxFilter {
    /// Keyrings belong to users and sessions, which no namespace separates: keyrings(7).
    private static let keys = ["add_key", "keyctl", "request_key"]
    /// Requests of ioctl(2) that push input into a terminal, for another program to read: TIOCSTI, ioctl_tty(2), and TIOCLINUX,
    /// ioctl_console(2).
    private static let input: [UInt64] = [UInt64(TIOCSTI), UInt64(TIOCLINUX)]

    /// Requests of ptrace(2) that attach to a process, which stops it: PTRACE_ATTACH and PTRACE_SEIZE.
    private static let tracing: [UInt64] = [16, 0x4206]

    /// AF_VSOCK, vsock(7): sockets to the host of a virtual machine and to this machine, which no network namespace confines.
    private static let vsock: UInt64 = 40
    /// SYS_SOCKET of socketcall(2), whose arguments no filter sees.
    private static let socketOfMultiplexer: UInt64 = 1

    /// Returns the filter as the kernel takes it, in an anonymous file positioned at its start: what bwrap(1) expects for `--seccomp`.
    ///
    /// - Parameter hasNetwork: whether the sandbox has the machine's network, and so all its sockets.
    public static func file(hasNetwork: Bool) throws(Errno) -> FileDescriptor {
        guard let filter = seccomp_init(cseccomp_allow) else { throw Errno(ENOMEM) }
        defer { seccomp_release(filter) }
        // Programs of other architectures have other call numbers. Without these lines they would
        // be killed.
        for architecture in foreign {
            let result = seccomp_arch_add(filter, architecture)
            if result < 0, result != -EEXIST { throw Errno(-result) }
        }
        for name in keys { try refuse(name, filter, []) }
        if !hasNetwork {
            let family = scmp_arg_cmp(arg: 0, op: SCMP_CMP_MASKED_EQ, datum_a: 0xFFFF_FFFF, datum_b: vsock)
            for name in ["socket", "socketpair"] { try refuse(name, filter, [family], by: EAFNOSUPPORT) }
            // 32-bit programs have had socket(2) itself since Linux 4.3. Older ones get no socket.
            let call = scmp_arg_cmp(arg: 0, op: SCMP_CMP_MASKED_EQ, datum_a: 0xFFFF_FFFF, datum_b: socketOfMultiplexer)
            try refuse("socketcall", filter, [call], by: EAFNOSUPPORT)
        }
        for request in input {
            // The kernel uses only the lower 32 bits.
            try refuse("ioctl", filter, [scmp_arg_cmp(arg: 1, op: SCMP_CMP_MASKED_EQ, datum_a: 0xFFFF_FFFF, datum_b: request)])
        }
        for request in tracing {
            // PID 1 is bubblewrap's. A tracer that stops it and exits would keep the sandbox from ending. A pid has 32 bits.
            try refuse(
                "ptrace", filter,
                [
                    scmp_arg_cmp(arg: 0, op: SCMP_CMP_MASKED_EQ, datum_a: 0xFFFF_FFFF, datum_b: request),
                    scmp_arg_cmp(arg: 1, op: SCMP_CMP_MASKED_EQ, datum_a: 0xFFFF_FFFF, datum_b: 1),
                ])
        }
        let file = try MemoryFile.of([])
        let result = seccomp_export_bpf(filter, file.number)
        if result < 0 { throw Errno(-result) }
        guard lseek(file.number, 0, SEEK_SET) == 0 else { throw Errno(errno) }
        return file
    }

    private static func refuse(
        _ name: String, _ filter: scmp_filter_ctx, _ comparisons: [scmp_arg_cmp], by error: Int32 = EPERM
    ) throws(Errno) {
        let result = seccomp_rule_add_array(
            filter, cseccomp_refuse(UInt16(error)), seccomp_syscall_resolve_name(name), UInt32(comparisons.count), comparisons)
        if result < 0 { throw Errno(-result) }
    }

    /// Architectures whose programs the native one can run as well.
    private static var foreign: [UInt32] {
        #if arch(x86_64)
            [cseccomp_arch_x86, cseccomp_arch_x32]
        #elseif arch(arm64)
            [cseccomp_arch_arm]
        #else
            []
        #endif
    }
}

/// Resources shared with other processes, which a thread and the programs it starts can leave and
/// not enter again.
public enum SharedResources {
    /// Replaces the session keyring by an empty one.
    public static func leaveSessionKeyring() throws(Errno) { _ = try Errno.check(clinux_session_keyring_leave()) }

    /// Leaves the abstract sockets of others, which the network namespace holds, see unix(7). No exec gives rights any more.
    public static func leaveAbstractSockets() throws(Errno) { _ = try Errno.check(clinux_abstract_sockets_leave()) }
}
