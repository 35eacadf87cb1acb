import CLinux

/// What /proc/PID/comm says of processes.
public enum ProcessName {
    /// Of this process. Fifteen bytes at most are kept. To be called from the main thread: others have names of their own.
    public static func set(_ name: String) { _ = clinux_set_thread_name(name) }

    /// Of a process, any bytes: it may call itself what it likes. Empty when it has ended, is of another PID namespace, or is not to be seen.
    public static func of(_ pid: Int32) -> [UInt8] {
        guard pid > 0, let name = try? File.contents(of: "/proc/\(pid)/comm".utf8) else { return [] }
        return name.last == 0x0A ? name.dropLast() : name
    }

    /// Of the process that a thread belongs to, with that process's number: FUSE names threads. The thread's own number where nothing is to be seen of it.
    public static func ofProcess(withThread thread: Int32) -> (pid: Int32, name: [UInt8]) {
        let pid = ProcessAncestry.process(ofThread: thread) ?? thread
        return (pid, of(pid))
    }
}
