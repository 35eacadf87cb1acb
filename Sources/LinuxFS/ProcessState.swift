/// What a process is doing: field 3 of proc_pid_stat(5). Nothing is said of what cannot be looked at.
public enum ProcessState {
    /// Whether it was stopped by a signal or is traced.
    public static func isStopped(_ pid: Int32) -> Bool { ["T", "t"].contains(letter(of: pid)) }

    /// Whether its main thread runs, or would if a processor were free: it waits for nothing.
    public static func isRunnable(_ pid: Int32) -> Bool { letter(of: pid) == "R" }

    private static func letter(of pid: Int32) -> Unicode.Scalar? {
        // The name before it may hold anything, parentheses included.
        guard pid > 0, let text = try? File.contents(of: Array("/proc/\(pid)/stat".utf8)), let end = text.lastIndex(of: UInt8(ascii: ")")),
            end + 2 < text.count
        else { return nil }
        return Unicode.Scalar(text[end + 2])
    }
}
