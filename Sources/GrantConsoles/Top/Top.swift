import GrantAdministration
import GrantModel
import GrantTerminal

/// The state machine of `top`, without a terminal, a store or a mount. It turns keys and answers into effects.
public struct Top: LiveConsole {
    /// An action that the person has confirmed.
    public enum Action: Equatable, Sendable {
        case revoke(GrantID)
        case restore(GrantID)
        case set(GrantID, Access)
        case unmount([UInt8])
    }

    public typealias Effect = LiveEffect<Action>
    public typealias Answer = LiveAnswer<TopSnapshot>

    enum Order: String, CaseIterable { case name, state, inodes, operations }

    /// Identifies a row, so that the selection follows it.
    struct RowID: Hashable {
        var view: ViewName
        var mount: GrantID?
        var grant: GrantID?
    }

    struct Question {
        let action: Action
        let text: String
        /// The message while the action runs.
        let progress: String
    }

    var size = Size(rows: 24, columns: 80)
    /// Seconds between two updates.
    let delay: Double
    var snapshot: TopSnapshot?
    private(set) var rates: [TopRates.Source: TopRates] = [:]
    var order = Order.name
    var window = ListWindow()
    var question: Question?
    var isShowingHelp = false
    /// Shows the grants and views that have this text in their name or directory.
    private(set) var filter = ""
    /// Whether the filter is being edited.
    private(set) var isFiltering = false
    /// Whether revoked and expired grants are hidden.
    private(set) var hidesWithdrawn = false
    var message = ""
    /// Why the data is old.
    var failure: String?
    private var selected: RowID?
    /// The width of the longest name, in columns.
    private(set) var longestName = 0

    public init(delay: Double) { self.delay = delay }

    public mutating func resize(_ size: Size) {
        self.size = size
        show()
    }

    public mutating func handle(_ answer: Answer) {
        switch answer {
        case .seen(let new):
            if let old = snapshot { rates = TopRates.between(old, new) }
            snapshot = new
            failure = nil
            longestName = new.sections.flatMap { $0.grants.map { DisplayWidth.of(VisibleText.of($0.name.bytes)) } }.max() ?? 0
            sort()
        case .failed(let reason): failure = reason
        case .done(let text): message = text
        }
        show()
    }

    public mutating func handle(_ key: Key) -> [Effect] {
        if isShowingHelp {
            isShowingHelp = false
            return key == .control("c") ? [.quit] : []
        }
        if key == .control("c") { return [.quit] }
        if let question { return answer(key, question) }
        if isFiltering, type(key) { return [] }
        message = ""
        if window.handle(key, count: rows.count, height: listHeight) {
            remember()
            return []
        }
        switch key {
        case .escape where !filter.isEmpty: setFilter("")
        case .character("q"), .escape: return [.quit]
        case .character("/"): isFiltering = true
        case .character("x"):
            hidesWithdrawn.toggle()
            show()
        case .character("?"), .character("h"), .function(1): isShowingHelp = true
        case .character("s"):
            let all = Order.allCases
            order = all[((all.firstIndex(of: order) ?? 0) + 1) % all.count]
            sort()
            show()
        case .character("r"), .character("e"), .character("a"), .character("u"): ask(key)
        default: break
        }
        return []
    }

    /// Handles a key while the filter is edited. Returns false for keys of the list.
    private mutating func type(_ key: Key) -> Bool {
        switch key {
        case .character(let scalar) where VisibleText.isPlain(scalar): setFilter(filter + String(scalar))
        case .character: break
        case .backspace: setFilter(String(filter.dropLast()))
        case .enter: isFiltering = false
        case .escape:
            isFiltering = false
            setFilter("")
        default: return false
        }
        return true
    }

    private mutating func setFilter(_ text: String) {
        filter = text
        show()
    }

    private mutating func answer(_ key: Key, _ question: Question) -> [Effect] {
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

    var rows: [RowID] {
        (snapshot?.sections ?? []).flatMap { section -> [RowID] in
            let place = RowID(view: section.view, mount: section.mount)
            let isMeant = has(section.view.description) || has(VisibleText.of(section.mountpoint))
            let grants = section.grants.filter { row in
                if hidesWithdrawn, row.state == .revoked || row.state == .expired { return false }
                return isMeant || has(VisibleText.of(row.name.bytes)) || has(VisibleText.of(row.path))
            }
            if grants.isEmpty, !isMeant { return [] }
            return [place] + grants.map { RowID(view: section.view, mount: section.mount, grant: $0.id) }
        }
    }

    private func has(_ text: String) -> Bool { filter.isEmpty || TextSearch.does(text.lowercased(), contain: filter.lowercased()) }

    /// The number of hidden grants.
    var hiddenCount: Int { (snapshot?.sections ?? []).reduce(0) { $0 + $1.grants.count } - rows.count { $0.grant != nil } }

    func section(of place: RowID) -> TopSnapshot.Section? {
        snapshot?.sections.first { $0.view == place.view && $0.mount == place.mount }
    }

    func row(of place: RowID) -> TopSnapshot.Row? { section(of: place)?.grants.first { $0.id == place.grant } }

    var current: RowID? {
        let rows = rows
        return window.selected < rows.count ? rows[window.selected] : nil
    }

    private mutating func remember() { selected = current }

    /// Keeps the selection on the same row.
    private mutating func show() {
        let rows = rows
        if let selected, let index = rows.firstIndex(of: selected) { window.select(index) }
        window.show(count: rows.count, height: listHeight)
        remember()
    }

    private mutating func sort() {
        guard var snapshot else { return }
        let order = order
        for index in snapshot.sections.indices {
            let mount = snapshot.sections[index].mount
            let operations = { [rates] (grant: GrantID) in
                mount.flatMap { rates[TopRates.Source(mount: $0, grant: grant)]?.operations } ?? -1
            }
            snapshot.sections[index].grants.sort { left, right in
                let names = left.name.bytes.lexicographicallyPrecedes(right.name.bytes)
                switch order {
                case .name: return names
                case .state: return left.state == right.state ? names : left.state.rawValue < right.state.rawValue
                case .inodes: return left.inodes == right.inodes ? names : left.inodes > right.inodes
                case .operations:
                    let (one, other) = (operations(left.id), operations(right.id))
                    return one == other ? names : one > other
                }
            }
        }
        self.snapshot = snapshot
    }
}
