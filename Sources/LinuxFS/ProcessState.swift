/// What a process is doing.
public enum ProcessState {
    /// Whether it was stopped by a signal or is traced: field 3 of proc_pid_stat(5). False for what cannot be looked at.
    public static func isStopped(_ pid: Int32) -> Bool {
        // The name before it may hold anything, parentheses included.
        guard pid > 0, let text = try? File.contents(of: Array("/proc/\(pid)/stat".utf8)), let end = text.lastIndex(of: UInt8(ascii: ")")),
            end + 2 < text.count
        else { return false }
        return [UInt8(ascii: "T"), UInt8(ascii: "t")].contains(text[end + 2])
    }
}
