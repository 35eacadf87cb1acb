import Glibc

extension ProcessState {
    /// Whether no code of the process's program will run again.
    ///
    /// The process may still exist, and keep its files open, while one of its threads is in an
    /// uninterruptible call. Each of its threads has ended, will end when it leaves the kernel, or
    /// has released its memory. Returns false if that cannot be determined.
    ///
    /// Reads two small files of /proc for a live process. `status` is one for which the kernel
    /// never waits.
    public static func isOver(_ pid: Int32) -> Bool {
        guard pid > 0, isOver(task: "/proc/\(pid)/status") == true else { return false }
        let directory = "/proc/\(pid)/task"
        guard let names = try? DirectoryNames.of(directory.utf8), !names.isEmpty else { return false }
        // A thread that has gone meanwhile has ended.
        return names.allSatisfy { isOver(task: "\(directory)/\(String(decoding: $0, as: UTF8.self))/status") != false }
    }

    /// SIGKILL in a set of signals.
    private static let killed: UInt64 = 1 << (SIGKILL - 1)

    /// Returns nil when there is no such task.
    private static func isOver(task path: String) -> Bool? {
        let text: [UInt8]
        do throws(Errno) {
            text = try File.contents(of: path.utf8)
        } catch {
            return error == Errno(ENOENT) || error == Errno(ESRCH) ? nil : false
        }
        var (isWhole, hasMemory, isOver) = (false, false, false)
        // The name before the other lines has its newlines written as \n, so no line of its own can
        // come from it.
        for line in text.split(separator: 0x0A) {
            if line.starts(with: "State:\t".utf8) { isOver = isOver || line.dropFirst(7).first.map { $0 == 0x5A || $0 == 0x58 } == true }
            // While memory is dumped, all other threads are gone or going, and the dumping thread
            // ends afterwards.
            if line.elementsEqual("CoreDumping:\t1".utf8) { isOver = true }
            if line.starts(with: "Vm".utf8) { hasMemory = true }
            if line.starts(with: "SigPnd:\t".utf8) || line.starts(with: "ShdPnd:\t".utf8) {
                isWhole = true
                let signals = UInt64(String(decoding: line.dropFirst(8), as: UTF8.self), radix: 16) ?? 0
                isOver = isOver || signals & killed != 0
            }
        }
        return isWhole && (isOver || !hasMemory)
    }
}
