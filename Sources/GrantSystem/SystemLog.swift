import CGrantSystem
import Glibc
import Synchronization

/// The daemon's log for administrators, one line per message.
///
/// It is journald with fields if the daemon runs in the background or as a service and journald
/// exists. Otherwise it is syslog(3), or else standard error. Commands log changes of grants by
/// `writeForCommand`.
public enum SystemLog {
    /// As syslog(3) has them.
    public enum Level: Int32, Sendable {
        case error = 3
        case warning = 4
        case notice = 5
        case info = 6
    }

    /// A field of the journal entry: a name of upper-case letters, digits and `_`, and bytes.
    public typealias Field = (name: String, value: [UInt8])

    private enum Destination: UInt8, AtomicRepresentable {
        case standardError, journal, syslog
    }

    private static let destination = Atomic<Destination>(.standardError)

    /// Chooses the destination for the rest of the process. Before, it is standard error.
    ///
    /// - Parameter isForeground: Whether a person or a service manager reads standard error.
    public static func open(isForeground: Bool) {
        // Set by systemd if standard error leads to the journal anyway, and would lose the fields.
        if isForeground, getenv("JOURNAL_STREAM") == nil { return }
        if clinux_journal_is_there() {
            destination.store(.journal, ordering: .releasing)
        } else if !isForeground, access("/dev/log", W_OK) == 0 {
            destination.store(.syslog, ordering: .releasing)
        }
    }

    /// Writes a message, from any thread. Never fails: an unwritable message is lost.
    ///
    /// - Parameter message: Contains no control characters.
    public static func write(_ level: Level, _ message: String, _ fields: [Field] = []) {
        switch destination.load(ordering: .acquiring) {
        case .standardError: writeToStandardError(message)
        case .syslog: clinux_syslog(level.rawValue, message)
        case .journal: writeToJournal(level, message, fields)
        }
    }

    /// Writes a message of a command, whose standard error has another use.
    ///
    /// It goes to the journal, else to syslog(3), else nowhere.
    public static func writeForCommand(_ level: Level, _ message: String, _ fields: [Field] = []) {
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
    /// Reports readiness with a status line.
    public static func ready(_ status: String) { _ = clinux_notify("READY=1\nSTATUS=\(status)", false) }
    /// Reports that the service is stopping.
    public static func stopping() { _ = clinux_notify("STOPPING=1", true) }
    /// Makes another process the service's main process (sd_notify(3), MAINPID).
    public static func handOver(to process: Int32) { _ = clinux_notify("MAINPID=\(process)", false) }
    /// Stops reporting for the service.
    public static func leave() { unsetenv("NOTIFY_SOCKET") }
}
