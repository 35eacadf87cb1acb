import Glibc

/// Parent relations between processes.
public enum ProcessAncestry {
    /// Whether a thread or process belongs to `process` or to one of its descendants.
    ///
    /// Returns false if /proc does not tell.
    public static func process(of pid: Int32, isOrComesFrom process: Int32) -> Bool {
        guard pid > 0, process > 0 else { return false }
        var current = pid
        for _ in 0..<deepest {
            guard let text = try? File.contents(of: Array("/proc/\(current)/status".utf8)), let group = field("Tgid:", text),
                let parent = field("PPid:", text)
            else { return false }
            if group == process || parent == process { return true }
            if parent <= 1 { return false }
            current = parent
        }
        return false
    }

    /// Whether the thread is ending by a signal, or has ended, or is not visible.
    package static func isBeingKilled(_ thread: Int32) -> Bool {
        guard thread > 0, let text = try? File.contents(of: Array("/proc/\(thread)/status".utf8)) else { return true }
        let mask = { (name: String) -> UInt64? in
            guard let line = text.split(separator: 0x0A).first(where: { $0.starts(with: name.utf8) }) else { return nil }
            return UInt64(String(decoding: line.dropFirst(name.utf8.count), as: UTF8.self).filter { $0.isHexDigit }, radix: 16)
        }
        guard let own = mask("SigPnd:"), let shared = mask("ShdPnd:"), let blocked = mask("SigBlk:"), let ignored = mask("SigIgn:"),
            let caught = mask("SigCgt:")
        else { return true }
        let kill = UInt64(1) << (SIGKILL - 1)
        let harmless = [SIGCHLD, SIGCONT, SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU, SIGURG, SIGWINCH].reduce(UInt64(0)) { $0 | 1 << ($1 - 1) }
        // Each thread of a process that a signal ends gets SIGKILL, but not before a core dump, or under a debugger.
        return (own | shared) & (kill | ~(blocked | ignored | caught | harmless)) != 0
    }

    /// The process of a thread. Returns nil if it has ended or is not visible.
    package static func process(ofThread thread: Int32) -> Int32? {
        guard thread > 0, let text = try? File.contents(of: Array("/proc/\(thread)/status".utf8)) else { return nil }
        return field("Tgid:", text)
    }

    private static let deepest = 256

    private static func field(_ name: String, _ status: [UInt8]) -> Int32? {
        for line in status.split(separator: UInt8(ascii: "\n")) where line.starts(with: name.utf8) {
            let digits = line.dropFirst(name.utf8.count).filter { $0 >= UInt8(ascii: "0") && $0 <= UInt8(ascii: "9") }
            return Int32(String(decoding: digits, as: UTF8.self), radix: 10)
        }
        return nil
    }
}
