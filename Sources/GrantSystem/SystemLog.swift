import CGrantSystem
import Glibc
import Synchronization

/// Where a daemon says what an administrator is to know: journald with fields, where the daemon runs in the background or as a service and there is a
/// journald; else syslog(3); else standard error. One line a message. What commands did to grants is said there as well (`note`).
public enum SystemLog {
    /// As syslog(3) has them.
    public enum Level: Int32, Sendable {
        case error = 3
        case warning = 4
        case notice = 5
        case info = 6
    }

    /// A field of the journal's entry: a name of upper-case letters, digits and `_`, and bytes.
    public typealias Field = (name: String, value: [UInt8])

    private enum Destination: UInt8, AtomicRepresentable {
        case standardError, journal, syslog
    }

    private static let destination = Atomic<Destination>(.standardError)

    /// Chooses for the rest of the process's life; until then it is standard error. `isForeground`: a person or a service manager reads that.
    public static func open(isForeground: Bool) {
        // Set by systemd where standard error leads to the journal anyway, and would lose the fields.
        if isForeground, getenv("JOURNAL_STREAM") == nil { return }
        if clinux_journal_is_there() {
            destination.store(.journal, ordering: .releasing)
        } else if !isForeground, access("/dev/log", W_OK) == 0 {
            destination.store(.syslog, ordering: .releasing)
        }
    }

    /// Says it, from any thread. `message` has no control characters. Never fails: what cannot be said is lost.
    public static func write(_ level: Level, _ message: String, _ fields: [Field] = []) {
        switch destination.load(ordering: .acquiring) {
        case .standardError: writeToStandardError(message)
        case .syslog: clinux_syslog(level.rawValue, message)
        case .journal: writeToJournal(level, message, fields)
        }
    }

    /// The same for a command, whose standard error is for something else: to the journal, else to syslog(3), else nowhere.
    public static func note(_ level: Level, _ message: String, _ fields: [Field] = []) {
        if clinux_journal_is_there() {
            writeToJournal(level, message, fields)
        } else if access("/dev/log", W_OK) == 0 {
            clinux_syslog(level.rawValue, message)
        }
    }

    private static func writeToJournal(_ level: Level, _ message: String, _ fields: [Field]) {
        let all: [Field] =
            [
                ("MESSAGE", Array(message.utf8)), ("PRIORITY", Array(String(level.rawValue).utf8)),
                ("SYSLOG_IDENTIFIER", Array("grantfs".utf8)),
            ] + fields.prefix(28)
        if send(all.map { Array($0.name.utf8) + [UInt8(ascii: "=")] + $0.value }) < 0 { clinux_syslog(level.rawValue, message) }
    }

    private static func send(_ fields: [[UInt8]]) -> Int32 {
        let copies = fields.map { field in
            let copy = UnsafeMutablePointer<CChar>.allocate(capacity: field.count)
            for (place, byte) in field.enumerated() { copy[place] = CChar(bitPattern: byte) }
            return copy
        }
        defer { for copy in copies { copy.deallocate() } }
        return clinux_journal_send(copies.map { UnsafePointer($0) }, fields.map(\.count), Int32(clamping: fields.count))
    }

    private static func writeToStandardError(_ message: String) {
        let line = Array("grantfs: \(message)\n".utf8)
        _ = line.withUnsafeBytes { Glibc.write(2, $0.baseAddress!, $0.count) }
    }
}

/// The service manager that has started this process, see sd_notify(3).
public enum ServiceManager {
    /// Says that the service is up, with a line about it.
    public static func ready(_ status: String) { _ = clinux_notify("READY=1\nSTATUS=\(status)", false) }
    /// Says that it is on its way out.
    public static func stopping() { _ = clinux_notify("STOPPING=1", true) }
    /// Says that another process is the service's from now on (sd_notify(3), MAINPID).
    public static func handOver(to process: Int32) { _ = clinux_notify("MAINPID=\(process)", false) }
    /// From here on this process speaks for no service.
    public static func leave() { unsetenv("NOTIFY_SOCKET") }
}
