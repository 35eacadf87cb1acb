import GrantModel
import GrantTerminal

// The screens of `pick`. Nothing is shown by colour or brightness alone.
extension Picker {
    private static let headRows = 3
    private static let footRows = 2

    /// The rows for the list of directories.
    var bodyHeight: Int { max(1, size.rows - Picker.headRows - Picker.footRows) }
    /// The number of choices visible at once: two rows each, and one for a problem.
    var reviewHeight: Int { max(1, (size.rows - 4) / 3) }

    func browsingFrame(_ size: Size) -> Frame {
        let columns = size.columns
        let marked = choices.isEmpty ? "nothing marked" : "\(choices.count) marked"
        let title = Line.split(
            Line("grantfs pick", .bold), Line("\(VisibleText.of(view.description)), \(access.rawValue): \(marked)"), columns: columns)
        let label = "Filter: "
        let (text, column) = filter.shown(columns: columns - label.count)
        let head = [
            title, Line(DisplayWidth.cutStart(VisibleText.of(path), to: columns)), Line([Span(label, .dim), Span(text)]),
        ]
        let height = bodyHeight
        var body = window.rows(count: rowCount, height: height).compactMap { index in row(index).map { line($0, index, columns) } }
        switch content {
        case .loading: body.append(Line("    reading…", .dim))
        case .failed(let reason): body.append(Line("    ! \(VisibleText.of(reason))", colour: .bad))
        case .entries where typedPath != nil: body.append(Line("    Enter opens the directory of this path", .dim))
        case .entries where places.isEmpty: body.append(Line(filter.text.isEmpty ? "    no directories" : "    nothing is called so", .dim))
        case .entries: break
        }
        let foot = [Line(message.isEmpty ? count : message, message.isEmpty ? .dim : .bold), Line(browsingKeys, .dim)]
        return Frame(
            head: head, body: Array(body.prefix(height)), foot: foot, size: size,
            cursor: Frame.Position(row: 2, column: label.count + column))
    }

    private var browsingKeys: String { "Space mark  Enter open  ← up  Tab review  ^T hidden  F1 help  Esc cancel" }

    private var count: String {
        guard case .entries(let entries) = content else { return "" }
        if places.count == entries.all.count { return "\(places.count) directories" }
        return "\(places.count) of \(entries.all.count) directories" + (showsHidden ? "" : ", hidden ones not shown")
    }

    private func line(_ entry: PickerEntry, _ index: Int, _ columns: Int) -> Line {
        let isSelected = index == window.selected
        let isMarked = entry.kind != .above && self.isMarked(path(of: entry))
        var line = Line((isSelected ? "> " : "  ") + (isMarked ? "* " : "  "), isMarked ? .bold : [])
        line.add(VisibleText.of(entry.name) + "/", isMarked ? .bold : [], colour: entry.kind == .link ? .link : .plain)
        switch entry.kind {
        case .here: line.add("  this directory", .dim)
        case .link: line.add("  symbolic link", .dim)
        case .unknownLink: line.add("  symbolic link, to where is not known", .dim)
        case .directory, .above: break
        }
        if entry.kind != .above, let views = granted[path(of: entry)] {
            line.add("  granted to " + views.map { VisibleText.of($0.description) }.joined(separator: ", "), colour: .good)
        }
        return isSelected ? line.styled(.reverse, columns: columns) : line.cut(to: columns)
    }

    func reviewFrame(_ size: Size) -> Frame {
        let columns = size.columns
        let count = choices.count == 1 ? "1 directory is" : "\(choices.count) directories are"
        let title = Line("grantfs pick: \(count) to be granted", .bold)
        let shown = reviewWindow.rows(count: choices.count, height: reviewHeight)
        let names = choices.map { VisibleText.of($0.name?.bytes ?? Array("?".utf8)) }
        let width = min(max(8, names.map { DisplayWidth.of($0) }.max() ?? 0), max(8, columns - 40))
        let body = shown.flatMap { lines(of: $0, names[$0], width, columns) }
        var (foot, cursor) = ([Line](), Frame.Position?.none)
        if let editing {
            let label =
                switch editing.field {
                case .name: "Name: "
                case .view: "View: "
                case .expiry: "Expires after or at: "
                }
            let (text, column) = editing.line.shown(columns: columns - label.count)
            let example = editing.field == .expiry ? "2h, 7d, 2030-01-31, or nothing for never. " : ""
            let hint = message.isEmpty ? example + "Enter takes it, Escape keeps the old one" : VisibleText.of(message)
            foot = [Line([Span(label, .bold), Span(text)]), Line(hint, message.isEmpty ? .dim : .bold)]
            cursor = Frame.Position(row: size.rows - 2, column: label.count + column)
        } else {
            let problems = choices.indices.count { problem($0) != nil }
            let state = page == .granting ? "being granted…" : problems > 0 ? "\(problems) of \(choices.count) cannot be granted" : ""
            foot = [
                Line(message.isEmpty ? state : VisibleText.of(message), .bold),
                Line("Enter grant  Space access  n name  v view  e expiry  Del drop  Esc back  ^C quit", .dim),
            ]
        }
        return Frame(head: [title, Line()], body: body, foot: foot, size: size, cursor: cursor)
    }

    private func lines(of index: Int, _ name: String, _ width: Int, _ columns: Int) -> [Line] {
        let choice = choices[index]
        let isSelected = index == reviewWindow.selected
        var first = Line((isSelected ? "> " : "  ") + DisplayWidth.fitted(name, to: width) + "  ", .bold)
        first.add(DisplayWidth.fitted(choice.access.rawValue, to: 10) + "  view " + VisibleText.of(choice.view.description))
        if let expiry = choice.expiry { first.add("  expires " + VisibleText.of(expiry), colour: .warning) }
        var lines = [
            isSelected ? first.styled(.reverse, columns: columns) : first.cut(to: columns),
            Line("    " + DisplayWidth.cutStart(VisibleText.of(choice.path), to: columns - 4)),
        ]
        if let problem = problem(index) {
            lines.append(Line("    ! " + VisibleText.of(problem), colour: .bad))
        } else if choice.finding == .open {
            lines.append(Line("    being looked at…", .dim))
        }
        return lines.map { $0.cut(to: columns) }
    }

    func helpFrame(_ size: Size) -> Frame {
        let rows = [
            "↑ ↓ PgUp PgDn Home End   move", "Enter →                  open the directory", "← Backspace              the directory above",
            "letters                  show names with them, ^U clears that",
            "/… ~/… a/b               type a path, and Enter opens it", "Space Insert             mark, or take the mark away",
            "^T                       show hidden directories, or do not", "Tab F2                   go to the marked directories: choose",
            "                         access, name, view and expiry, and grant it", "Esc ^C                   change nothing and end", "",
            "A symbolic link is not followed when it is marked: open it, and", "mark the directory that it leads to.",
        ]
        return Frame(
            head: [Line("grantfs pick: keys", .bold), Line()], body: rows.map { Line($0) }, foot: [Line("any key goes back", .dim)],
            size: size)
    }
}
