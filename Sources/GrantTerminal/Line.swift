/// The style of text. No meaning depends on it alone: a terminal may show none of it.
public struct Style: OptionSet, Sendable {
    public let rawValue: Int32
    public init(rawValue: Int32) { self.rawValue = rawValue }

    public static let bold = Style(rawValue: 1)
    public static let dim = Style(rawValue: 2)
    public static let reverse = Style(rawValue: 4)
    public static let underline = Style(rawValue: 8)
}

/// A colour, named by its purpose.
public enum Colour: Int32, Sendable, CaseIterable {
    case plain
    case good
    case warning
    case bad
    case link
}

/// A piece of a line. The text was escaped by `VisibleText`, or is the program's own.
public struct Span: Sendable, Equatable {
    public var text: String
    public var style: Style
    public var colour: Colour

    public init(_ text: String, _ style: Style = [], colour: Colour = .plain) {
        (self.text, self.style, self.colour) = (text, style, colour)
    }
}

/// One line of a screen.
public struct Line: Sendable, Equatable {
    public private(set) var spans: [Span]

    public init(_ spans: [Span] = []) { self.spans = spans }
    public init(_ text: String, _ style: Style = [], colour: Colour = .plain) { spans = [Span(text, style, colour: colour)] }

    public var text: String { spans.map(\.text).joined() }
    public var width: Int { spans.reduce(0) { $0 + DisplayWidth.of($1.text) } }

    public mutating func add(_ text: String, _ style: Style = [], colour: Colour = .plain) {
        spans.append(Span(text, style, colour: colour))
    }

    /// Pads with spaces to the column: at least one space, unless the line is empty.
    public mutating func tab(to column: Int) { add(String(repeating: " ", count: max(width == 0 ? 0 : 1, column - width))) }

    /// Puts `left` at the left edge and `right` at the right edge. `left` is cut if both do not
    /// fit.
    public static func split(_ left: Line, _ right: Line, columns: Int) -> Line {
        let room = columns - right.width
        guard room > 1 else { return left.cut(to: columns) }
        let cut = left.cut(to: room - 1)
        return Line(cut.spans + [Span(String(repeating: " ", count: room - cut.width))] + right.spans)
    }

    public func cut(to columns: Int) -> Line {
        if width <= columns { return self }
        var (result, room) = ([Span](), columns)
        for (index, span) in spans.enumerated() {
            let width = DisplayWidth.of(span.text)
            // A span that just fits is cut as well when more follows, so that the `…` shows.
            let isLast = spans[(index + 1)...].allSatisfy { $0.text.isEmpty }
            if width < room || (width == room && isLast) {
                result.append(span)
                room -= width
                continue
            }
            let text = width > room ? span.text : span.text + " "
            result.append(Span(DisplayWidth.cut(text, to: room), span.style, colour: span.colour))
            break
        }
        return Line(result)
    }

    /// Adds a style to the whole line, padded to the edge: for a selected row.
    public func styled(_ style: Style, columns: Int) -> Line {
        let cut = cut(to: columns)
        let filled = cut.spans + [Span(String(repeating: " ", count: max(0, columns - cut.width)))]
        // In reverse video, a colour would be a block in the row.
        return Line(filled.map { Span($0.text, $0.style.union(style), colour: style.contains(.reverse) ? .plain : $0.colour) })
    }
}

/// The size of a screen, in cells.
public struct Size: Sendable, Equatable {
    public var rows: Int
    public var columns: Int
    public init(rows: Int, columns: Int) { (self.rows, self.columns) = (rows, columns) }
}

/// A whole screen from its top. Missing lines are empty.
public struct Frame: Sendable, Equatable {
    public var lines: [Line]
    /// The position of the cursor, or nil if it is hidden.
    public var cursor: Position?

    public struct Position: Sendable, Equatable {
        public var row: Int
        public var column: Int
        public init(row: Int, column: Int) { (self.row, self.column) = (row, column) }
    }

    public init(_ lines: [Line], cursor: Position? = nil) { (self.lines, self.cursor) = (lines, cursor) }

    /// Puts `head` at the top, `foot` at the bottom, and as much of `body` between them as fits. The foot is cut first where space is
    /// short.
    public init(head: [Line], body: [Line], foot: [Line], size: Size, cursor: Position? = nil) {
        let foot = foot.suffix(max(0, size.rows - head.count - min(body.count, 1)))
        let room = max(0, size.rows - head.count - foot.count)
        let shown = body.prefix(room)
        let gap = [Line](repeating: Line(), count: room - shown.count)
        lines = (head + shown + gap + foot).prefix(size.rows).map { $0.cut(to: size.columns) }
        self.cursor = cursor.flatMap { $0.row < size.rows && $0.column < size.columns ? $0 : nil }
    }

    /// The text of all lines, without trailing spaces.
    public var text: String {
        lines.map { line in
            let text = line.text
            return String(text[..<(text.lastIndex { $0 != " " }.map { text.index(after: $0) } ?? text.startIndex)])
        }.joined(separator: "\n")
    }
}
