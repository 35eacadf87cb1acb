import CLinux

/// What /proc/PID/comm says.
public enum ProcessName {
    /// Fifteen bytes at most are kept. To be called from the main thread: others have names of their own.
    public static func set(_ name: String) { _ = clinux_set_thread_name(name) }

    /// The name of a process or thread; empty when there is none. The kernel keeps nobody waiting for it.
    public static func of(_ pid: Int32) -> [UInt8] {
        guard pid > 0, let name = try? File.contents(of: "/proc/\(pid)/comm".utf8) else { return [] }
        return name.last == 0x0A ? name.dropLast() : name
    }
}
