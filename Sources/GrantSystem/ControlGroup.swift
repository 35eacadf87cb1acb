import Glibc

/// Control groups, version 2 (cgroups(7)).
public enum ControlGroup {
    /// Makes this process a member of the group that another one is in. False when it is not one afterwards: for want of privileges, or because groups are not to be seen.
    public static func join(that process: Int32) -> Bool {
        guard let wanted = path(of: process) else { return false }
        if path(of: getpid()) == wanted { return true }
        guard let file = try? FileDescriptor.open("/sys/fs/cgroup\(wanted)/cgroup.procs".utf8, O_WRONLY) else { return false }
        return write(file.number, "0", 1) == 1 && path(of: getpid()) == wanted
    }

    /// Below the root of all groups, as /proc/PID/cgroup has it.
    private static func path(of process: Int32) -> String? {
        guard let text = try? File.contents(of: "/proc/\(process)/cgroup".utf8) else { return nil }
        let line = text.split(separator: 0x0A).first { $0.starts(with: "0::".utf8) }
        return line.map { String(decoding: $0.dropFirst(3), as: UTF8.self) }
    }
}
