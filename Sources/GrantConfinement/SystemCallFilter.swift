import CGrantSystem
import CGrantSeccomp
import Glibc
import GrantSystem

/// The seccomp(2) filter of the daemon, by libseccomp: a list of the calls that it may make.
public enum SystemCallFilter {
    /// What happens at a call that is not allowed.
    public enum Refusal: Sendable {
        /// It fails with EPERM.
        case error
        /// The process is killed: for tests, so that a call missing from the list is noticed.
        case end
    }

    /// Installs the filter in every thread, irrevocably: only the calls of `SystemCalls`, and no
    /// rights gained by exec.
    ///
    /// `.ENOSYS` or `.EINVAL` where the kernel has no filters.
    ///
    /// - Parameter copiesMounts: Whether it may copy mounts, which get no place (`OwnerNamespace`).
    public static func install(_ refusal: Refusal = .error, copiesMounts: Bool = false) throws(Errno) {
        guard let filter = seccomp_init(refusal == .error ? cseccomp_refuse(UInt16(EPERM)) : cseccomp_end_process) else {
            throw Errno(ENOMEM)
        }
        defer { seccomp_release(filter) }
        // Applies to threads that already exist as well.
        try check(seccomp_attr_set(filter, SCMP_FLTATR_CTL_TSYNC, 1))
        // The daemon runs no foreign code, so the mitigation of speculative store bypass would only
        // cost time.
        _ = seccomp_attr_set(filter, SCMP_FLTATR_CTL_SSB, 1)
        // A binary tree, so that the lookup takes few steps in a long list.
        _ = seccomp_attr_set(filter, SCMP_FLTATR_CTL_OPTIMIZE, 2)
        for name in SystemCalls.allowed + (copiesMounts ? SystemCalls.copyingMounts : []) { try allow(name, filter) }
        for (name, conditions) in SystemCalls.conditional {
            for condition in conditions { try allow(name, filter, condition) }
        }
        // With ENOSYS the C library makes threads by clone, whose flags a filter can see.
        try add(cseccomp_refuse(UInt16(ENOSYS)), "clone3", filter, [])
        try check(seccomp_load(filter))
    }

    private static func allow(_ name: String, _ filter: scmp_filter_ctx, _ condition: ArgumentCondition? = nil) throws(Errno) {
        let comparison = condition.map { scmp_arg_cmp(arg: $0.argument, op: SCMP_CMP_MASKED_EQ, datum_a: $0.mask, datum_b: $0.value) }
        try add(cseccomp_allow, name, filter, comparison.map { [$0] } ?? [])
    }

    /// Skips calls that this architecture does not have.
    private static func add(_ action: UInt32, _ name: String, _ filter: scmp_filter_ctx, _ comparisons: [scmp_arg_cmp]) throws(Errno) {
        let known = seccomp_syscall_resolve_name(name)
        guard let number = known >= 0 ? known : SystemCalls.newer[name] else { return }
        try check(seccomp_rule_add_array(filter, action, number, UInt32(comparisons.count), comparisons))
    }

    private static func check(_ result: Int32) throws(Errno) {
        if result < 0 { throw Errno(-result) }
    }
}
