import Glibc
import GrantModel

/// Output to stdout and stderr.
package enum Terminal {
    package static let standardOutput: Int32 = 1
    package static let standardError: Int32 = 2

    /// Writes to stdout. `.system` on failure: a script must not take half a document for a whole one.
    package static func print(_ text: String, terminator: String = "\n") throws(GrantError) {
        if !write(text + terminator, to: standardOutput) {
            throw GrantError(.system, "the output cannot be written", cause: String(cString: strerror(errno)))
        }
    }

    /// Whether stdout may have a reader: false for a pipe that every reader has closed.
    package static var hasReader: Bool {
        var output = pollfd(fd: standardOutput, events: 0, revents: 0)
        return poll(&output, 1, 0) <= 0 || output.revents & Int16(POLLERR) == 0
    }

    /// Writes a line to one of the two.
    package static func print(_ text: String, to descriptor: Int32) throws(GrantError) {
        if descriptor == standardOutput { return try print(text) }
        say(text)
    }

    /// Writes text as it is, without a newline. Ignores errors.
    package static func show(_ text: String, on descriptor: Int32) { _ = write(text, to: descriptor) }

    /// Writes a line to a descriptor that has a reader. Throws `.system` on failure.
    package static func answer(_ text: String, on descriptor: Int32) throws(GrantError) {
        if !write(text + "\n", to: descriptor) {
            throw GrantError(.system, "the answer cannot be written", cause: String(cString: strerror(errno)))
        }
    }

    /// Writes a line as it is to stderr.
    package static func say(_ text: String) { _ = write(text + "\n", to: standardError) }

    /// Asks on the terminal. Returns the first letter of the answer in lower case, or nil at the
    /// end of the input.
    package static func choice(_ question: String) -> Character? {
        _ = write("grantfs: \(visible(question)) ", to: standardError)
        guard let answer = readLine() else {
            _ = write("\n", to: standardError)
            return nil
        }
        return answer.first.flatMap { $0.lowercased().first } ?? " "
    }

    /// Writes a line for people to stderr.
    package static func note(_ text: String) { _ = write("grantfs: \(visible(text))\n", to: standardError) }

    package static func report(_ error: GrantError) { note(error.description) }

    /// Asks on the terminal. Returns whether the answer begins with a y.
    package static func asks(_ question: String) -> Bool {
        _ = write("grantfs: \(visible(question)) [y/N] ", to: standardError)
        guard let answer = readLine() else {
            _ = write("\n", to: standardError)
            return false
        }
        return answer.hasPrefix("y") || answer.hasPrefix("Y")
    }

    /// Whether to use colour: on a terminal, unless the user has disabled it (https://no-color.org).
    package static func hasColour(_ descriptor: Int32) -> Bool {
        guard isatty(descriptor) == 1, getenv("NO_COLOR") == nil else { return false }
        return getenv("TERM").map { String(cString: $0) != "dumb" } ?? false
    }

    /// Escapes control characters and invalid UTF-8 for a terminal, as `\n`, `\x1b`.
    package static func visible(_ bytes: [UInt8]) -> String { VisibleText.of(bytes) }

    package static func visible(_ text: String) -> String { VisibleText.of(text) }

    private static func write(_ text: String, to descriptor: Int32) -> Bool {
        var rest = Array(text.utf8)[...]
        while !rest.isEmpty {
            let count = rest.withUnsafeBytes { Glibc.write(descriptor, $0.baseAddress, $0.count) }
            if count < 0 {
                if errno == EINTR { continue }
                return false
            }
            rest = rest.dropFirst(count)
        }
        return true
    }
}
