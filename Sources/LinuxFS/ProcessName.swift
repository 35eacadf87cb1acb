import CLinux

/// What /proc/PID/comm says of this process.
public enum ProcessName {
    /// Fifteen bytes at most are kept. To be called from the main thread: others have names of their own.
    public static func set(_ name: String) { _ = clinux_set_thread_name(name) }
}
