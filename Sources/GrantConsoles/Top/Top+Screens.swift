import GrantAdministration
import GrantModel
import GrantTerminal

// The screens of `top`. States are words: nothing is shown by colour or brightness alone.
extension Top {
    private static let headRows = 2
    private static let footRows = 2

    /// Rows for holders: a third of a screen, none on a small one.
    private var holderHeight: Int { size.rows >= 16 ? size.rows / 3 : 0 }
    /// Rows for mounts and grants.
    var listHeight: Int { max(1, size.rows - Top.headRows - Top.footRows - holderHeight) }
    private var isNarrow: Bool { size.columns < 72 }
    /// Whether all columns fit. Otherwise the directory takes the place of some, which are shown below for the selected grant.
    private var isWide: Bool { size.columns >= 100 }

    public func frame(_ size: Size) -> Frame {
        if isShowingHelp { return helpFrame(size) }
        let columns = size.columns
        let rows = rows
        var body = window.rows(count: rows.count, height: listHeight).map { index in
            let line = line(rows[index], isSelected: index == window.selected)
            return index == window.selected ? line.styled(.reverse, columns: columns) : line
        }
        if snapshot == nil {
            body = [Line("  looking…", .dim)]
        } else if rows.isEmpty {
            body = [Line(hiddenCount > 0 ? "  nothing to show: \(hiddenCount) hidden" : "  nothing is granted or mounted", .dim)]
        }
        // Right below the list, so that the visible text is together.
        if holderHeight > 0 { body += holderLines(height: holderHeight) }
        return Frame(head: [title, header], body: body, foot: foot, size: size)
    }

    /// Everything on one page, for output without a screen.
    public func text() -> String {
        var copy = self
        copy.resize(Size(rows: 100_000, columns: 10_000))
        // Nothing is selected there.
        let holders = (snapshot?.sections ?? []).filter { !$0.holders.isEmpty }.flatMap { section in
            [Line(), Line("HELD at \(VisibleText.of(section.mountpoint))")] + section.holders.map { copy.line($0) }
        }
        let lines = [copy.plainTitle, copy.header] + copy.rows.map { copy.line($0, isSelected: false) } + holders
        return Frame(lines).text
    }

    private var plainTitle: Line {
        let mounts = snapshot?.sections.count { $0.mount != nil } ?? 0
        let grants = Set(snapshot?.sections.flatMap { $0.grants.map(\.id) } ?? []).count
        return Line(
            "grantfs top: \(mounts) \(mounts == 1 ? "mount" : "mounts"), \(grants) \(grants == 1 ? "grant" : "grants")", .bold)
    }

    private var title: Line {
        var left = plainTitle
        if hiddenCount > 0 { left.add(", \(hiddenCount) hidden", colour: .warning) }
        return Line.split(left, Line("by \(order.rawValue), every \(TopRates.text(delay)) s", .dim), columns: size.columns)
    }

    /// Long names are cut first.
    private var nameWidth: Int {
        min(max(longestName, 8), isNarrow ? 12 : isWide ? max(16, min(40, size.columns - 90)) : size.columns - 64)
    }

    private var header: Line {
        let start = "    " + DisplayWidth.fitted("GRANT", to: nameWidth) + "  " + DisplayWidth.fitted("STATE", to: 11) + "  "
        let rest = isNarrow ? "" : "        OP/S   BYTES/S" + (isWide ? "  INODES  DENIED  RUNNING  DIRECTORY" : "  DIRECTORY")
        return Line(start + "ACCESS" + rest, .bold).cut(to: size.columns)
    }

    private func line(_ place: RowID, isSelected: Bool) -> Line {
        guard let section = section(of: place) else { return Line() }
        let mark = isSelected ? "> " : "  "
        guard let row = row(of: place) else { return line(section, mark) }
        var line = Line(mark + "  " + DisplayWidth.fitted(VisibleText.of(row.name.bytes), to: nameWidth) + "  ")
        // The state is only recorded. No mount has reported it.
        let state = row.state.rawValue + (row.isLive || section.mount == nil ? "" : " ?")
        line.add(DisplayWidth.fitted(state, to: 11), colour: row.state == .active ? .good : .warning)
        line.add("  " + DisplayWidth.fitted(row.access.rawValue, to: 10))
        if !isNarrow {
            let column = { (text: String?, width: Int) in
                let text = text ?? "-"
                return "  " + String(repeating: " ", count: max(0, width - text.count)) + text
            }
            let rate = section.mount.flatMap { rates[TopRates.Source(mount: $0, grant: row.id)] }
            line.add(column(rate.map { TopRates.text($0.operations) }, 6) + column(rate?.bytes.map { TopRates.bytes($0) }, 8))
            if isWide {
                line.add(column(row.isLive ? String(row.inodes) : nil, 6) + column(row.denials.map { String($0) }, 6))
                line.add(column(row.isLive ? String(row.inFlight) : nil, 7))
            }
            line.add("  ")
            line.add(DisplayWidth.cutStart(VisibleText.of(row.path), to: max(1, size.columns - line.width)))
        }
        return line.cut(to: size.columns)
    }

    private func line(_ section: TopSnapshot.Section, _ mark: String) -> Line {
        var left = Line(mark + VisibleText.of(section.view.description), .bold)
        guard let mount = section.mount else {
            left.add("  not mounted")
            return left.cut(to: size.columns)
        }
        if section.isDead {
            left.add("  ! dead: its daemon has ended", colour: .bad)
            left.add("  at \(VisibleText.of(section.mountpoint))")
            return left.cut(to: size.columns)
        }
        if let unresponsiveReason = section.unresponsiveReason {
            left.add("  ! does not answer: \(VisibleText.of(unresponsiveReason))", colour: .bad)
            left.add("  at \(VisibleText.of(section.mountpoint))")
            return left.cut(to: size.columns)
        }
        let rates = rates[TopRates.Source(mount: mount)]
        var right = "\(rates.map { TopRates.text($0.operations) } ?? "-") op/s"
        if !isNarrow {
            if let read = rates?.readBytes, let written = rates?.writtenBytes {
                right += "  \(TopRates.bytes(read))/s read  \(TopRates.bytes(written))/s written"
            }
            right += "  \(section.inodes) inodes"
        }
        let columns = min(size.columns, 200)
        let room = columns - left.width - DisplayWidth.of(right) - 6
        left.add("  at " + DisplayWidth.cutStart(VisibleText.of(section.mountpoint), to: max(1, room)))
        return Line.split(left, Line(right), columns: columns)
    }

    // MARK: holders

    private func holderLines(height: Int) -> [Line] {
        guard let current, let section = section(of: current), section.mount != nil else { return [] }
        let row = row(of: current)
        let holders = row.map { Top.holders(of: $0, in: section) } ?? section.holders
        let what = row.map { "“\(VisibleText.of($0.name.bytes))”" } ?? "something of “\(VisibleText.of(section.view.description))”"
        let title =
            holders.isEmpty
            ? "Nobody holds \(what)" : "\(holders.count == 1 ? "1 process holds" : "\(holders.count) processes hold") \(what)"
        let room = height - 2
        var heading = Line(title, .bold)
        if let row {
            var facts = row.secondsLeft.map { "ends in \(TopRates.duration($0))" }.map { [$0] } ?? []
            if !isWide, row.isLive {
                facts.append("\(row.inodes) inodes")
                if let denials = row.denials, denials > 0 { facts.append("\(denials) denied") }
            }
            let end = facts.map { ", " + $0 }.joined()
            heading.add(", which is ")
            heading.add(DisplayWidth.cutStart(VisibleText.of(row.path), to: max(1, size.columns - heading.width - DisplayWidth.of(end))))
            heading.add(end)
        }
        var lines = [Line(), heading.cut(to: size.columns)]
        lines += holders.prefix(holders.count > room ? room - 1 : room).map { line($0) }
        if holders.count > room { lines.append(Line("  … and \(holders.count - room + 1) more", .dim)) }
        return lines
    }

    private func line(_ holder: Holder) -> Line {
        var line = Line("  \(holder.pid) \(VisibleText.of(holder.command))  \(holder.kinds.map(\.rawValue).joined(separator: ", "))  ")
        let more = holder.paths.count > 1 ? "  and \(holder.paths.count - 1) more" : ""
        let room = size.columns - line.width - DisplayWidth.of(more)
        line.add(holder.paths.first.map { DisplayWidth.cutStart(VisibleText.of($0), to: max(1, room)) } ?? "")
        line.add(more)
        return line.cut(to: size.columns)
    }

    /// Returns the holders of something below the grant's name.
    static func holders(of row: TopSnapshot.Row, in section: TopSnapshot.Section) -> [Holder] {
        let root = CanonicalPath.join(section.mountpoint, row.name.bytes)
        return section.holders.filter { holder in
            holder.paths.contains { $0.starts(with: root) && ($0.count == root.count || $0[root.count] == UInt8(ascii: "/")) }
        }
    }

    // MARK: the bottom, and help

    private var foot: [Line] {
        if let question {
            return [Line(question.text, [.bold, .reverse]).cut(to: size.columns), Line("y does it, n changes nothing", .bold)]
        }
        if isFiltering {
            return [
                Line("show: \(filter)_", .bold).cut(to: size.columns),
                Line("Enter keeps it, Esc shows everything", .dim).cut(to: size.columns),
            ]
        }
        return [
            Line(VisibleText.of(failure.map { "! " + $0 } ?? message), .bold).cut(to: size.columns),
            Line("r revoke  e restore  a access  u unmount  s sort  / find  x hide  ? help  q quit", .dim).cut(to: size.columns),
        ]
    }

    private func helpFrame(_ size: Size) -> Frame {
        let rows = [
            "↑ ↓ PgUp PgDn   choose a mount or a grant", "r               revoke the grant, in every mount of its view",
            "e               restore a grant that was revoked or has expired",
            "a               make a grant read-only, or read-write again",
            "u               unmount the view", "s               sort by name, state, inodes, operations a second",
            "/               show rows with these letters in name, view or directory",
            "x               hide revoked and expired grants, and show them again",
            "q Esc ^C        end", "", "Each asks before it does something.",
            "OP/S, BYTES/S: since the last look. INODES: those that the kernel keeps.",
            "On a wide screen DENIED: refusals. RUNNING: operations under way.",
            "A state with ? is recorded, but the mount has not confirmed it.",
        ]
        return Frame(
            head: [Line("grantfs top: keys", .bold), Line()], body: rows.map { Line($0) }, foot: [Line("any key goes back", .dim)],
            size: size)
    }
}
