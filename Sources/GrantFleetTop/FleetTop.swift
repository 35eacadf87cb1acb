import GrantConsoles
import GrantFleet
import GrantModel
import GrantTerminal

/// The state machine of `fleet top`, without a terminal or an etcd.
public struct FleetTop: LiveConsole {
    public enum Action: Equatable, Sendable {
        case revoke(GrantID)
        /// Restores the grant as it was at this revision.
        case restore(GrantID, seen: Int64)
    }

    public typealias Snapshot = FleetSnapshot

    enum Order: String, CaseIterable { case name, state, lag }

    /// Identifies a row, so that the selection follows it.
    enum RowID: Hashable {
        case hosts
        case host(String)
        case grants
        case grant(GrantID)
    }

    struct Question {
        let action: Action
        let text: String
        let progress: String
    }

    var size = Size(rows: 24, columns: 80)
    let delay: Double
    let view: ViewName?
    var snapshot: FleetSnapshot?
    var order = Order.name
    var window = ListWindow()
    var question: Question?
    var isShowingHelp = false
    var filter = ""
    var isFiltering = false
    /// Whether inactive grants are hidden.
    var hidesWithdrawn = false
    var message = ""
    /// Why the data is old.
    var failure: String?
    private var selected: RowID?
    /// The visible rows, in order. Computed when something changes, not for every line.
    private(set) var rows: [RowID] = []

    /// `delay`: seconds between two updates. `view`: shows only its grants.
    public init(delay: Double, view: ViewName? = nil) { (self.delay, self.view) = (delay, view) }

    public mutating func resize(_ size: Size) {
        self.size = size
        show()
    }

    public mutating func handle(_ answer: LiveAnswer<FleetSnapshot>) {
        switch answer {
        case .seen(let new): (snapshot, failure) = (new, new.invalidEntries.first?.description)
        case .failed(let reason): failure = reason
        case .done(let text): message = text
        }
        show()
    }

    public mutating func handle(_ key: Key) -> [LiveEffect<Action>] {
        if isShowingHelp {
            isShowingHelp = false
            return key == .control("c") ? [.quit] : []
        }
        if key == .control("c") { return [.quit] }
        if let question { return answer(key, question) }
        if isFiltering, type(key) { return [] }
        message = ""
        if window.handle(key, count: rows.count, height: listHeight) {
            selected = current
            return []
        }
        switch key {
        case .escape where !filter.isEmpty: filter = ""
        case .character("q"), .escape: return [.quit]
        case .character("/"): isFiltering = true
        case .character("x"): hidesWithdrawn.toggle()
        case .character("?"), .character("h"), .function(1): isShowingHelp = true
        case .character("s"):
            let all = Order.allCases
            order = all[((all.firstIndex(of: order) ?? 0) + 1) % all.count]
        case .character("r"), .character("e"): ask(key)
        default: break
        }
        show()
        return []
    }

    /// Handles a key while the filter is edited. Returns false for keys of the list.
    private mutating func type(_ key: Key) -> Bool {
        switch key {
        case .character(let scalar) where VisibleText.isPlain(scalar): filter += String(scalar)
        case .character: break
        case .backspace: filter = String(filter.dropLast())
        case .enter: isFiltering = false
        case .escape: (isFiltering, filter) = (false, "")
        default: return false
        }
        show()
        return true
    }

    private mutating func ask(_ key: Key) {
        guard let grant = current.flatMap({ grant(at: $0) }), let snapshot else {
            return message = "that is for a grant: choose one with ↑ and ↓"
        }
        let short = "“\(VisibleText.name(grant.name.bytes))”"
        let name = "\(short) (\(grant.id.description.prefix(12))) in the fleet's view “\(VisibleText.name(grant.view.description))”"
        let isActive = grant.state(at: snapshot.time) == .active
        switch (key, isActive) {
        case (.character("r"), _) where grant.state == .revoked: message = "\(short) is revoked already"
        case (.character("r"), _):
            question = Question(action: .revoke(grant.id), text: "Revoke \(name) on every host?", progress: "revoking \(short)…")
        case (_, true): message = "\(short) is not revoked"
        default:
            question = Question(
                action: .restore(grant.id, seen: grant.revision), text: "Restore \(name) for the hosts \(grant.hosts)?",
                progress: "restoring \(short)…")
        }
    }

    private mutating func answer(_ key: Key, _ question: Question) -> [LiveEffect<Action>] {
        switch key {
        case .character("y"), .character("Y"):
            self.question = nil
            message = question.progress
            return [.act(question.action)]
        case .character("n"), .character("N"), .escape, .character("q"):
            self.question = nil
            message = "nothing was changed"
        default: break
        }
        return []
    }

    // MARK: rows

    var current: RowID? { window.selected < rows.count ? rows[window.selected] : nil }
    func host(at place: RowID) -> FleetHost? {
        guard case .host(let id) = place else { return nil }
        return snapshot?.hosts.first { $0.id == id }
    }

    func grant(at place: RowID) -> FleetGrant? {
        guard case .grant(let id) = place else { return nil }
        return snapshot?.grants.first { $0.id == id }
    }

    private func has(_ texts: [String]) -> Bool {
        filter.isEmpty || texts.contains { TextSearch.does($0.lowercased(), contain: filter.lowercased()) }
    }

    /// Keeps the selection on the same row.
    private mutating func show() {
        rows = wantedRows()
        if let selected, let index = rows.firstIndex(of: selected) { window.select(index) }
        window.show(count: rows.count, height: listHeight)
        selected = current
    }

    private func wantedRows() -> [RowID] {
        guard let snapshot else { return [] }
        var hosts = snapshot.hosts.filter { has([$0.id, $0.labels.description]) }
        var grants = snapshot.grants.filter { grant in
            if let view, grant.view != view { return false }
            if hidesWithdrawn, grant.state(at: snapshot.time) != .active { return false }
            return has([VisibleText.name(grant.name.bytes), VisibleText.name(grant.place), grant.view.description, grant.hosts.description])
        }
        switch order {
        case .name: break
        case .state:
            hosts.sort { ($0.lease == nil ? 0 : 1, $0.id) < ($1.lease == nil ? 0 : 1, $1.id) }
            let ranks = Dictionary(grants.map { ($0.id, $0.state(at: snapshot.time).rawValue) }, uniquingKeysWith: { first, _ in first })
            grants.sort { (ranks[$0.id] ?? "", $0.name.description) < (ranks[$1.id] ?? "", $1.name.description) }
        case .lag:
            let lags = Set(hosts.filter { snapshot.isLagging($0) }.map(\.id))
            hosts.sort { (lags.contains($0.id) ? 0 : 1, $0.id) < (lags.contains($1.id) ? 0 : 1, $1.id) }
            let waits = Dictionary(grants.map { ($0.id, counts(of: $0, snapshot).waiting) }, uniquingKeysWith: { first, _ in first })
            grants.sort { (-(waits[$0.id] ?? 0), $0.name.description) < (-(waits[$1.id] ?? 0), $1.name.description) }
        }
        return [.hosts] + hosts.map { .host($0.id) } + [.grants] + grants.map { .grant($0.id) }
    }

    /// Counts the hosts by their status for a grant.
    func counts(of grant: FleetGrant, _ snapshot: FleetSnapshot) -> (confirmed: Int, waiting: Int, gone: Int) {
        snapshot.hosts.reduce(into: (0, 0, 0)) { counts, host in
            switch snapshot.status(of: host, for: grant) {
            case .confirmed: counts.confirmed += 1
            case .waiting: counts.waiting += 1
            case .gone: counts.gone += 1
            case nil: break
            }
        }
    }
}
