import CGrantSystem
import Glibc

/// A terminal that a program plays for another one, see pty(7).
public struct PseudoTerminal: ~Copyable, Sendable {
    /// For who plays it.
    public let outer: FileDescriptor
    /// For who uses it.
    public let inner: FileDescriptor

    /// Makes one with the size and the settings of another terminal.
    public static func make(like terminal: Int32) throws(Errno) -> PseudoTerminal {
        let made = try PseudoTerminal()
        var settings = termios()
        guard tcgetattr(terminal, &settings) == 0, tcsetattr(made.inner.number, TCSANOW, &settings) == 0 else { throw Errno(errno) }
        _ = clinux_terminal_copy_size(terminal, made.outer.number)
        return made
    }

    private init() throws(Errno) {
        var ends: [Int32] = [-1, -1]
        _ = try Errno.check(clinux_terminal_make(&ends))
        outer = FileDescriptor(owning: ends[0])
        inner = FileDescriptor(owning: ends[1])
    }

    /// Gives both away; the caller closes them.
    public consuming func release() -> (outer: Int32, inner: Int32) { (outer.release(), inner.release()) }

    /// Takes over the size that the other terminal has by now.
    public static func copySize(from terminal: Int32, to outer: Int32) { _ = clinux_terminal_copy_size(terminal, outer) }

    /// Begins a session of the calling process, which must lead no group, with the terminal as its own.
    public static func control(_ inner: Int32) throws(Errno) { _ = try Errno.check(clinux_terminal_control(inner)) }
}
