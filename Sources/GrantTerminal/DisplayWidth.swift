import CGrantNcurses
import Glibc

/// How many columns text takes, by wcwidth(3), which is what ncurses goes by as well.
public enum DisplayWidth {
    /// The character set of the process. wcwidth(3) and ncurses know no other.
    public enum Encoding: Sendable, Equatable {
        case utf8
        /// As nl_langinfo(3) names it.
        case other(String)
    }

    /// Takes on the locale's character set, once. Where nobody has chosen a locale it is UTF-8: that is what terminals are.
    public static let encoding: Encoding = {
        let locale = setlocale(LC_CTYPE, "").map { String(cString: $0) } ?? "C"
        if locale == "C" || locale == "POSIX" { setlocale(LC_CTYPE, "C.UTF-8") }
        let name = String(cString: nl_langinfo(nl_item(CODESET)))
        return name == "UTF-8" ? .utf8 : .other(name)
    }()

    /// 0 for what combines with the character before it, 2 for wide ones. What cannot be shown takes the one column of the mark in its place.
    static func of(_ scalar: Unicode.Scalar) -> Int {
        if (0x20..<0x7F).contains(scalar.value) { return 1 }
        let width = encoding == .utf8 ? cncurses_width(scalar.value) : 1
        return width < 0 ? 1 : Int(width)
    }

    public static func of(_ text: String) -> Int { text.unicodeScalars.reduce(0) { $0 + of($1) } }

    /// The text with a mark for each character that the C library has no width for: a terminal might do anything with it.
    static func showable(_ text: String) -> String {
        if text.utf8.allSatisfy({ (0x20..<0x7F).contains($0) }) { return text }
        return String(String.UnicodeScalarView(text.unicodeScalars.map { isShowable($0) ? $0 : "\u{FFFD}" }))
    }

    private static func isShowable(_ scalar: Unicode.Scalar) -> Bool {
        encoding == .utf8 ? cncurses_width(scalar.value) >= 0 : scalar.isASCII
    }

    /// As much from the start as fits into the columns, `…` behind it where something is left out.
    public static func cut(_ text: String, to columns: Int) -> String {
        if of(text) <= columns { return text }
        guard columns > 0 else { return "" }
        return head(text.unicodeScalars, columns - 1) + "…"
    }

    /// As much from the end as fits, `…` before it: a path's last names tell most.
    public static func cutStart(_ text: String, to columns: Int) -> String {
        if of(text) <= columns { return text }
        guard columns > 0 else { return "" }
        var (left, width) = ([Unicode.Scalar](), 0)
        for scalar in text.unicodeScalars.reversed() {
            width += of(scalar)
            if width > columns - 1 { break }
            left.append(scalar)
        }
        // What combined with a character that was left out would combine with the mark.
        while let last = left.last, of(last) == 0 { left.removeLast() }
        return "…" + String(String.UnicodeScalarView(left.reversed()))
    }

    /// Cut, and filled with spaces to exactly the columns.
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
