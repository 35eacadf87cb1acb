import CGrantNcurses
import Glibc
import GrantModel

/// The terminal in full-screen mode, by ncurses. There can be one at a time, used by the main thread only.
public final class Screen {
    /// The descriptor that keys come from.
    let input: Int32
    private let output: Int32
    private var isOpen = true
    private let hasColour: Bool

    /// Takes over the terminal: stdin and stdout if both are one, otherwise the controlling
    /// terminal, so that the output can be a pipe. Throws `.unsupported` if there is none, or it
    /// has no full-screen mode.
    public init() throws(GrantError) {
        if case .other(let name) = DisplayWidth.encoding {
            throw Screen.refusal("the character set of the locale is \(name)", advice: "choose one of UTF-8: LC_ALL=C.UTF-8")
        }
        let isWhole = isatty(0) == 1 && isatty(1) == 1
        let number = isWhole ? fcntl(0, F_DUPFD_CLOEXEC, 3) : open("/dev/tty", O_RDWR | O_CLOEXEC)
        let second = number < 0 ? -1 : fcntl(isWhole ? 1 : number, F_DUPFD_CLOEXEC, 3)
        guard number >= 0, second >= 0, isatty(number) == 1, let reading = fdopen(number, "r"), let writing = fdopen(second, "w") else {
            throw Screen.refusal("there is no terminal")
        }
        (input, output) = (number, second)
        let type = getenv("TERM").map { String(cString: $0) } ?? ""
        guard cncurses_open(writing, reading) == 0 else {
            throw Screen.refusal("the terminal's type “\(type)” is not known", advice: "set TERM")
        }
        guard cncurses_has_pages() != 0 else {
            endwin()
            throw Screen.refusal("a terminal of the type “\(type)” has lines and no pages")
        }
        hasColour = getenv("NO_COLOR") == nil && has_colors()
        if hasColour { Screen.prepareColours() }
    }

    /// Whether stdout is a terminal that could have a screen.
    public static var isAvailable: Bool { isatty(1) == 1 && getenv("TERM").map { String(cString: $0) } != "dumb" }

    deinit { close() }

    /// Restores the terminal.
    public func close() {
        if isOpen { endwin() }
        isOpen = false
    }

    public var size: Size { Size(rows: Int(cncurses_rows()), columns: Int(cncurses_columns())) }

    /// Draws a frame. Only differences are sent.
    public func show(_ frame: Frame) {
        let size = size
        for row in 0..<size.rows {
            cncurses_begin_row(Int32(row))
            if row < frame.lines.count {
                for span in frame.lines[row].cut(to: size.columns).spans {
                    let text = DisplayWidth.printable(span.text)
                    cncurses_add(text, Int32(text.utf8.count), span.style.rawValue, hasColour ? span.colour.rawValue : 0)
                }
            }
            cncurses_end_row()
        }
        cncurses_show(Int32(frame.cursor?.row ?? -1), Int32(frame.cursor?.column ?? 0))
    }

    /// Returns the keys that have come. It waits only for the rest of an escape sequence.
    func keys() -> [Key] {
        var (keys, code) = ([Key](), UInt32(0))
        while true {
            switch cncurses_key(&code) {
            case 0: if let key = Key(character: code) { keys.append(key) }
            case 1: if let key = Key(code: code) { keys.append(key) }
            default: return keys
            }
        }
    }

    /// Asks the terminal for its size, and adopts it.
    func updateSize() {
        var size = winsize()
        guard ioctl(output, UInt(TIOCGWINSZ), &size) == 0, size.ws_row > 0, size.ws_col > 0 else { return }
        cncurses_resize(Int32(size.ws_row), Int32(size.ws_col))
    }

    /// Stops the job, as Control-Z does elsewhere, and returns when it continues.
    func suspend() {
        endwin()
        kill(0, SIGTSTP)
        updateSize()
    }

    private static func prepareColours() {
        start_color()
        use_default_colors()
        for (colour, pairColour) in [(Colour.good, COLOR_GREEN), (.warning, COLOR_YELLOW), (.bad, COLOR_RED), (.link, COLOR_CYAN)] {
            init_pair(Int16(colour.rawValue), Int16(pairColour), -1)
        }
    }

    private static func refusal(_ cause: String, advice: String? = nil) -> GrantError {
        GrantError(.unsupported, "the screen cannot be shown", cause: cause, advice: advice)
    }
}
