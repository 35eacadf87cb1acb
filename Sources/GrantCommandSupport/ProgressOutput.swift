import Glibc
import GrantAdministration
import GrantCommandLine
import GrantSystem

/// Shows progress: on a terminal in a line that is overwritten, with --json as objects on stderr, otherwise not at all.
package final class ProgressOutput {
    private let isJSON: Bool
    private let isTerminal: Bool
    private var isShown = false
    private var next: Int64 = 0

    package init(isJSON: Bool) {
        self.isJSON = isJSON
        isTerminal = !isJSON && isatty(Terminal.standardError) == 1
    }

    package func show(_ progress: CoordinationProgress) {
        if isJSON {
            say(
                [
                    ("event", .string(progress.stage)), ("done", .unsigned(progress.done)),
                    ("total", progress.total.map { .unsigned($0) } ?? .null),
                    ("pids", .array(progress.pids.map { .integer(Int64($0)) })),
                ] + (progress.files.map { [("files", .unsigned($0))] } ?? []))
        } else if isTerminal, Clock.monotonic >= next {
            // At most ten updates a second.
            next = Clock.monotonic + 100_000_000
            var text = progress.stage
            if let files = progress.files {
                text += " \(files) files, \(progress.done >> 20) MiB"
            } else if progress.isBytes, progress.total == nil {
                text += " \(progress.done >> 20) MiB"
            } else if let total = progress.total, total > 0 {
                text += " \(progress.done * 100 / total) %"
            } else if progress.done > 0 {
                text += " \(progress.done)"
            }
            if !progress.pids.isEmpty { text += " for " + progress.pids.map { "process \($0)" }.joined(separator: ", ") }
            write("\r\u{1B}[Kgrantfs: \(text)")
            isShown = true
        }
    }

    /// Shows a step without a measure.
    package func note(_ event: String) {
        if isJSON { say([("event", .string(event))]) }
        end()
    }

    /// Clears the line.
    package func end() {
        if isShown { write("\r\u{1B}[K") }
        isShown = false
    }

    private func say(_ members: [(String, JSON)]) { write(JSON.object(members).text + "\n") }

    private func write(_ text: String) {
        let bytes = Array(text.utf8)
        _ = bytes.withUnsafeBytes { Glibc.write(Terminal.standardError, $0.baseAddress, $0.count) }
    }
}
