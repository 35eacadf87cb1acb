import CGrantNcurses
import Glibc

/// The number of columns that text takes, by wcwidth(3), which ncurses uses as well.
public enum DisplayWidth {
    /// The character set of the process, which alone wcwidth(3) and ncurses use.
    public enum Encoding: Sendable, Equatable {
        case utf8
        /// As nl_langinfo(3) names it.
        case other(String)
    }

    /// Sets the locale's character set, once. Without a chosen locale it is UTF-8, because terminals are.
    public static let encoding: Encoding = {
        let locale = setlocale(LC_CTYPE, "").map { String(cString: $0) } ?? "C"
        if locale == "C" || locale == "POSIX" { setlocale(LC_CTYPE, "C.UTF-8") }
        let name = String(cString: nl_langinfo(nl_item(CODESET)))
        return name == "UTF-8" ? .utf8 : .other(name)
    }()

    /// 0 for combining characters, 2 for wide ones. An unprintable one takes the one column of its replacement.
    static func of(_ scalar: Unicode.Scalar) -> Int {
        if (0x20..<0x7F).contains(scalar.value) { return 1 }
        let width = encoding == .utf8 ? cncurses_width(scalar.value) : 1
        return width < 0 ? 1 : Int(width)
    }

    public static func of(_ text: String) -> Int { text.unicodeScalars.reduce(0) { $0 + of($1) } }

    /// Replaces each character for which the C library has no width: a terminal might do anything with it.
    static func printable(_ text: String) -> String {
        if text.utf8.allSatisfy({ (0x20..<0x7F).contains($0) }) { return text }
        return String(String.UnicodeScalarView(text.unicodeScalars.map { isPrintable($0) ? $0 : "\u{FFFD}" }))
    }

    private static func isPrintable(_ scalar: Unicode.Scalar) -> Bool {
        encoding == .utf8 ? cncurses_width(scalar.value) >= 0 : scalar.isASCII
    }

    /// Cuts the end off if the text is too wide, and puts `…` there.
    public static func cut(_ text: String, to columns: Int) -> String {
        if of(text) <= columns { return text }
        guard columns > 0 else { return "" }
        return head(text.unicodeScalars, columns - 1) + "…"
    }

    /// Cuts the start off if the text is too wide, and puts `…` there: the last names of a path say most.
    public static func cutStart(_ text: String, to columns: Int) -> String {
        if of(text) <= columns { return text }
        guard columns > 0 else { return "" }
        var (left, width) = ([Unicode.Scalar](), 0)
        for scalar in text.unicodeScalars.reversed() {
            width += of(scalar)
            if width > columns - 1 { break }
            left.append(scalar)
        }
        // A character that combined with one that was cut off would combine with the `…`.
        while let last = left.last, of(last) == 0 { left.removeLast() }
        return "…" + String(String.UnicodeScalarView(left.reversed()))
    }

    /// Cuts the text, or pads it with spaces, to exactly this width.
    public static func fitted(_ text: String, to columns: Int) -> String {
        let cut = cut(text, to: columns)
        return cut + String(repeating: " ", count: max(0, columns - of(cut)))
    }

    private static func head(_ scalars: String.UnicodeScalarView, _ columns: Int) -> String {
        var (result, width) = (String.UnicodeScalarView(), 0)
        for scalar in scalars {
            width += of(scalar)
            if width > columns { break }
            result.append(scalar)
        }
        return String(result)
    }
}
