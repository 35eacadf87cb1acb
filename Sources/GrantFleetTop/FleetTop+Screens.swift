import GrantConsoles
import GrantFleet
import GrantModel
import GrantTerminal

// The screens of `fleet top`. States are words: nothing is shown by colour alone.
extension FleetTop {
    private static let headRows = 1
    private static let footRows = 2

    /// Rows for details of the selection: a third of a screen, none on a small one.
    private var detailHeight: Int { size.rows >= 16 ? size.rows / 3 : 0 }
    var listHeight: Int { max(1, size.rows - FleetTop.headRows - FleetTop.footRows - detailHeight) }
    private var isNarrow: Bool { size.columns < 72 }
    private var nameWidth: Int { isNarrow ? 14 : size.columns >= 110 ? 28 : 18 }

    public func frame(_ size: Size) -> Frame {
        if isShowingHelp { return helpFrame(size) }
        var body = window.rows(count: rows.count, height: listHeight).map { index in
            let line = line(rows[index], isSelected: index == window.selected)
            return index == window.selected ? line.styled(.reverse, columns: size.columns) : line
        }
        if snapshot == nil { body = [Line("  looking…", .dim)] }
        if detailHeight > 0 { body += detail(height: detailHeight) }
        return Frame(head: [title], body: body, foot: foot, size: size)
    }

    /// Everything on one page, for output without a screen.
    public func text() -> String {
        var copy = self
        copy.resize(Size(rows: 100_000, columns: 10_000))
        var lines = [copy.plainTitle] + copy.rows.map { copy.line($0, isSelected: false) }
        let problems = (snapshot?.hosts ?? []).flatMap { host in copy.problems(of: host).map { (host, $0) } }
        if !problems.isEmpty { lines += [Line(), Line("CANNOT")] + problems.map { Line("  \(VisibleText.name($0.id)): \($1)") } }
        if let failure { lines.append(Line("! " + VisibleText.of(failure))) }
        return Frame(lines).text
    }

    private var plainTitle: Line {
        guard let snapshot else { return Line("grantfs top: the fleet", .bold) }
        let live = snapshot.hosts.count { $0.lease != nil }
        let lagging = snapshot.hosts.count { snapshot.isLagging($0) }
        let active = snapshot.grants.count { $0.state(at: snapshot.time) == .active }
        return Line(
            "grantfs top: \(live) of \(snapshot.hosts.count) hosts live, \(lagging) behind, "
                + "\(active) of \(snapshot.grants.count) grants active",
            .bold)
    }

    private var title: Line {
        let revision = snapshot.map { "revision \($0.revision), " } ?? ""
        return Line.split(
            plainTitle, Line((isNarrow ? "" : revision) + "by \(order.rawValue), every \(TopRates.text(delay)) s", .dim),
            columns: size.columns)
    }

    private func line(_ place: RowID, isSelected: Bool) -> Line {
        let mark = isSelected ? "> " : "  "
        let columns = { (name: String, state: String) in
            "\(mark)\(DisplayWidth.fitted(name, to: self.nameWidth))  \(DisplayWidth.fitted(state, to: 12))  "
        }
        switch place {
        case .hosts:
            return Line(columns("HOST", "STATE") + (isNarrow ? "LEASE" : "APPLIED   WANTED    LEASE  CLOCK   LABELS"), .bold).cut(
                to: size.columns)
        case .grants:
            return Line(columns("GRANT", "STATE") + (isNarrow ? "HOSTS" : "HOSTS        ACCESS      VIEW, PATH"), .bold).cut(
                to: size.columns)
        case .host: return host(at: place).map { line($0, mark) } ?? Line()
        case .grant: return grant(at: place).map { line($0, mark) } ?? Line()
        }
    }

    private func line(_ host: FleetHost, _ mark: String) -> Line {
        guard let snapshot else { return Line() }
        var line = Line(mark + DisplayWidth.fitted(VisibleText.name(host.id), to: nameWidth) + "  ")
        let (state, colour) = FleetTop.state(of: host, snapshot)
        line.add(DisplayWidth.fitted(state, to: 12), colour: colour)
        let left = host.lease == nil ? "-" : snapshot.left[host.id].map { "\($0) s" } ?? "lasts"
        if isNarrow {
            line.add("  " + left)
            return line.cut(to: size.columns)
        }
        line.add("  " + DisplayWidth.fitted(host.lease == nil ? "-" : String(host.applied), to: 8))
        line.add("  " + DisplayWidth.fitted(String(snapshot.wanted(of: host)), to: 8))
        line.add("  " + DisplayWidth.fitted(left, to: 5) + "  " + DisplayWidth.fitted(host.lease == nil ? "-" : "\(host.clock) s", to: 6))
        line.add("  " + VisibleText.name(host.labels.description))
        return line.cut(to: size.columns)
    }

    static func state(of host: FleetHost, _ snapshot: FleetSnapshot) -> (String, Colour) {
        if host.registered == nil { return ("taken out", .bad) }
        if host.lease == nil { return ("not heard of", .bad) }
        if snapshot.isLagging(host) { return ("behind", .warning) }
        return host.problems.isEmpty ? ("up to date", .good) : ("cannot all", .warning)
    }

    private func line(_ grant: FleetGrant, _ mark: String) -> Line {
        guard let snapshot else { return Line() }
        var line = Line(mark + DisplayWidth.fitted(VisibleText.name(grant.name.bytes), to: nameWidth) + "  ")
        let state = grant.state(at: snapshot.time)
        line.add(DisplayWidth.fitted(state.rawValue, to: 12), colour: state == .active ? .good : .warning)
        let counts = counts(of: grant, snapshot)
        let all = counts.confirmed + counts.waiting + counts.gone
        line.add("  ")
        let text = counts.waiting > 0 ? "\(counts.waiting) of \(all) wait" : all == 0 ? "none" : "all \(all)"
        line.add(isNarrow ? text : DisplayWidth.fitted(text, to: 11), colour: counts.waiting > 0 ? .warning : .plain)
        if !isNarrow {
            line.add("  " + DisplayWidth.fitted(grant.access.rawValue, to: 10) + "  " + VisibleText.name(grant.view.description) + "  ")
            line.add(DisplayWidth.cutStart(VisibleText.name(grant.place), to: max(1, size.columns - line.width)))
        }
        return line.cut(to: size.columns)
    }

    // MARK: selection

    private func detail(height: Int) -> [Line] {
        guard let snapshot, let current else { return [] }
        var (heading, all): (String, [Line]) = ("", [])
        if let grant = grant(at: current) {
            let rows = snapshot.hosts.compactMap { host in snapshot.status(of: host, for: grant).map { (host, $0) } }
            heading =
                "“\(VisibleText.name(grant.name.bytes))” for \(grant.hosts)"
                + (grant.by.isEmpty ? "" : ", changed by \(VisibleText.name(grant.by))")
            // Hosts that delay the grant come first.
            all = (rows.filter { $1 == .waiting } + rows.filter { $1 != .waiting }).map { line($0, $1, grant, snapshot) }
            if all.isEmpty { all = [Line("  it is for no host", .dim)] }
        } else if let host = host(at: current) {
            heading =
                "“\(VisibleText.name(host.id))”"
                + (host.version.isEmpty ? "" : ", grantfs \(VisibleText.of(VisibleText.cut(host.version, to: 40)))")
            all = problems(of: host).map { Line("  " + $0) }
            if all.isEmpty { all = [Line("  it can apply every grant", .dim)] }
        } else {
            return []
        }
        let room = height - 2
        let shown = all.prefix(all.count > room ? room - 1 : room).map { $0.cut(to: size.columns) }
        return [Line(), Line(heading, .bold).cut(to: size.columns)] + shown
            + (all.count > room ? [Line("  … and \(all.count - room + 1) more", .dim)] : [])
    }

    private func line(_ host: FleetHost, _ status: FleetSnapshot.HostStatus, _ grant: FleetGrant, _ snapshot: FleetSnapshot) -> Line {
        let isActive = grant.state(at: snapshot.time) == .active
        var line = Line("  " + DisplayWidth.fitted(VisibleText.name(host.id), to: nameWidth) + "  ")
        switch status {
        case .gone: line.add(isActive ? "not heard of, shows nothing" : "fenced: its lease is gone")
        case .waiting:
            line.add(isActive ? "has not opened it yet" : "may still serve it", colour: .warning)
            if let left = snapshot.left[host.id] { line.add(", for \(left &+ 1) s at the most unless it renews its lease") }
        case .confirmed:
            if let problem = host.problems[grant.id.description] {
                line.add(VisibleText.of(VisibleText.cut(problem, to: 300)), colour: .warning)
            } else {
                line.add(isActive ? "serves it" : "withdrawn", colour: .good)
            }
        }
        return line
    }

    /// What a host cannot apply, with the names of the grants.
    func problems(of host: FleetHost) -> [String] {
        (snapshot?.grants ?? []).compactMap { grant in
            host.problems[grant.id.description].map {
                "“\(VisibleText.name(grant.name.bytes))”: \(VisibleText.of(VisibleText.cut($0, to: 300)))"
            }
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
            Line("r revoke  e restore  s sort  / find  x hide  ? help  q quit", .dim).cut(to: size.columns),
        ]
    }

    private func helpFrame(_ size: Size) -> Frame {
        let rows = [
            "↑ ↓ PgUp PgDn   choose a host or a grant", "r               revoke the grant, on every host",
            "e               restore a grant that was revoked or has expired", "s               sort by name, state, or late hosts",
            "/               show rows with these letters in name, path, view or labels",
            "x               hide revoked and expired grants, and show them again",
            "q Esc ^C        end", "", "r and e ask before they do something.",
            "behind: the host has not applied every change. It may go on until its lease ends.",
            "cannot all: the host cannot show some of its grants. Choose it to see them.",
        ]
        return Frame(
            head: [Line("grantfs top --fleet: keys", .bold), Line()], body: rows.map { Line($0) },
            foot: [Line("any key goes back", .dim)], size: size)
    }
}
