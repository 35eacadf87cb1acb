import CGrantSystem
import Glibc

/// A pseudo-terminal, see pty(7).
public struct PseudoTerminal: ~Copyable, Sendable {
    /// The master side, for the program that emulates the terminal.
    public let outer: FileDescriptor
    /// The slave side, for the program that uses it.
    public let inner: FileDescriptor

    /// Makes a pseudo-terminal with the size and settings of another terminal.
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

    /// Gives both descriptors to the caller, who closes them.
    public consuming func release() -> (outer: Int32, inner: Int32) { (outer.release(), inner.release()) }

    /// Copies the current size of another terminal.
    public static func copySize(from terminal: Int32, to outer: Int32) { _ = clinux_terminal_copy_size(terminal, outer) }

    /// Starts a session for the calling process with this as its controlling terminal.
    ///
    /// The process must not lead a process group.
    public static func control(_ inner: Int32) throws(Errno) { _ = try Errno.check(clinux_terminal_control(inner)) }
}
