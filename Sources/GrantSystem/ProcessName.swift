import CGrantSystem

/// What /proc/PID/comm says of processes.
public enum ProcessName {
    /// Of this process. Fifteen bytes at most are kept. To be called from the main thread: others have names of their own.
    public static func set(_ name: String) { _ = clinux_set_thread_name(name) }

    /// Of a process, any bytes: it may call itself what it likes. Empty when it has ended, is of another PID namespace, or is not to be seen.
    public static func of(_ pid: Int32) -> [UInt8] {
        guard pid > 0, let name = try? File.contents(of: "/proc/\(pid)/comm".utf8) else { return [] }
        return name.last == 0x0A ? name.dropLast() : name
    }

    /// Whether a thread ends because a signal ends it (PF_SIGNALED of <linux/sched.h>). False where nothing is to be seen of it.
    public static func isBeingKilled(_ thread: Int32) -> Bool {
        field(6, of: thread).map { $0 & 0x400 != 0 } ?? false
    }

    /// When a process, or thread, was started, in ticks since boot: together with its number nobody else's. nil when there is none, or it is not to be seen.
    public static func start(of pid: Int32) -> UInt64? { field(19, of: pid) }

    /// A number of /proc/PID/stat, counted from what follows the name.
    private static func field(_ place: Int, of pid: Int32) -> UInt64? {
        guard pid > 0, let line = try? File.contents(of: "/proc/\(pid)/stat".utf8), let end = line.lastIndex(of: UInt8(ascii: ")")) else {
            return nil
        }
        let fields = line[(end + 1)...].split(separator: UInt8(ascii: " "))
        return fields.count > place ? UInt64(String(decoding: fields[place], as: UTF8.self), radix: 10) : nil
    }

    /// The process that a thread belongs to; its own number where nothing is to be seen of it.
    public static func process(ofThread thread: Int32) -> Int32 { ProcessAncestry.process(ofThread: thread) ?? thread }

    /// Of the process that a thread belongs to, with that process's number: FUSE names threads. The thread's own number where nothing is to be seen of it.
    public static func ofProcess(withThread thread: Int32) -> (pid: Int32, name: [UInt8]) {
        let pid = ProcessAncestry.process(ofThread: thread) ?? thread
        return (pid, of(pid))
    }
}
