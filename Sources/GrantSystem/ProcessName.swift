import CGrantSystem

/// Process names and other facts from /proc/PID.
public enum ProcessName {
    /// Names this process. At most fifteen bytes are kept.
    ///
    /// Call it from the main thread, because other threads have names of their own.
    public static func set(_ name: String) { _ = clinux_set_thread_name(name) }

    /// A process's name: any bytes, since it names itself.
    ///
    /// The result is empty if it has ended, is in another PID namespace, or is not visible.
    public static func of(_ pid: Int32) -> [UInt8] {
        guard pid > 0, let name = try? File.contents(of: "/proc/\(pid)/comm".utf8) else { return [] }
        return name.last == 0x0A ? name.dropLast() : name
    }

    /// Whether a fatal signal is ending the thread (PF_SIGNALED of <linux/sched.h>).
    ///
    /// Returns false if that is not visible.
    public static func isBeingKilled(_ thread: Int32) -> Bool {
        field(6, of: thread).map { $0 & 0x400 != 0 } ?? false
    }

    /// The start time of a process or thread in ticks since boot.
    ///
    /// Unique together with its number. Returns nil if it does not exist or is not visible.
    public static func start(of pid: Int32) -> UInt64? { field(19, of: pid) }

    /// A field of /proc/PID/stat, counted from the one after the name.
    private static func field(_ place: Int, of pid: Int32) -> UInt64? {
        guard pid > 0, let line = try? File.contents(of: "/proc/\(pid)/stat".utf8), let end = line.lastIndex(of: UInt8(ascii: ")")) else {
            return nil
        }
        let fields = line[(end + 1)...].split(separator: UInt8(ascii: " "))
        return fields.count > place ? UInt64(String(decoding: fields[place], as: UTF8.self), radix: 10) : nil
    }

    /// The process of a thread, or the thread's own number if that is not visible.
    public static func process(ofThread thread: Int32) -> Int32 { ProcessAncestry.process(ofThread: thread) ?? thread }

    /// The number and name of a thread's process: FUSE reports threads.
    ///
    /// Falls back to the thread's own number.
    public static func ofProcess(withThread thread: Int32) -> (pid: Int32, name: [UInt8]) {
        let pid = ProcessAncestry.process(ofThread: thread) ?? thread
        return (pid, of(pid))
    }
}
