import Glibc

/// Control groups, version 2 (cgroups(7)).
public enum ControlGroup {
    /// Moves this process into the control group of another one.
    ///
    /// Returns false if it is not in that group afterwards: it lacks the privilege, or the groups
    /// are not visible.
    public static func join(that process: Int32) -> Bool {
        guard let wanted = path(of: process) else { return false }
        if path(of: getpid()) == wanted { return true }
        guard let file = try? FileDescriptor.open("/sys/fs/cgroup\(wanted)/cgroup.procs".utf8, O_WRONLY) else { return false }
        return write(file.number, "0", 1) == 1 && path(of: getpid()) == wanted
    }

    /// The group's path below the root of the hierarchy, from /proc/PID/cgroup.
    private static func path(of process: Int32) -> String? {
        guard let text = try? File.contents(of: "/proc/\(process)/cgroup".utf8) else { return nil }
        let line = text.split(separator: 0x0A).first { $0.starts(with: "0::".utf8) }
        return line.map { String(decoding: $0.dropFirst(3), as: UTF8.self) }
    }
}
