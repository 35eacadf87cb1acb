/// The activity of a process, see proc_pid_status(5).
///
/// False for processes that are not visible.
public enum ProcessState {
    /// Whether it was stopped by a signal or is traced.
    public static func isStopped(_ pid: Int32) -> Bool { ["T", "t"].contains(letter(of: pid)) }

    /// Whether its main thread runs, or would run if a processor were free.
    public static func isRunnable(_ pid: Int32) -> Bool { letter(of: pid) == "R" }

    /// The state letter, from `status`.
    ///
    /// For `stat` the kernel waits while the process is in execve(2), which can be forever.
    private static func letter(of pid: Int32) -> Unicode.Scalar? {
        guard pid > 0, let text = try? File.contents(of: Array("/proc/\(pid)/status".utf8)) else { return nil }
        // The name before it has its newlines and tabs written as \n and \t, so no line of its own
        // can come from it.
        let line = text.split(separator: 0x0A).first { $0.starts(with: "State:\t".utf8) }
        return line?.dropFirst(7).first.map { Unicode.Scalar($0) }
    }
}
