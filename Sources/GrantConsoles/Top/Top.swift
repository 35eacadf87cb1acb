import GrantAdministration
import GrantModel
import GrantTerminal

/// The console, as far as it can be without a terminal, a store or a mount: what keys and answers make of it, and what is to be done then.
public struct Top: Sendable {
    /// What somebody wants done, after being asked.
    public enum Action: Equatable, Sendable {
        case revoke(GrantID)
        case restore(GrantID)
        case set(GrantID, Access)
        case unmount([UInt8])
    }

    public enum Effect: Equatable, Sendable {
        case act(Action)
        case quit
    }

    public enum Answer: Sendable {
        case seen(TopSnapshot)
        /// The store could not be looked at; what was seen last stays.
        case failed(String)
        /// What came of an action.
        case done(String)
    }

    enum Order: String, CaseIterable { case name, state, inodes, operations }

    /// A row by what it is, so that it stays selected wherever it goes.
    struct Place: Hashable {
        var view: ViewName
        var mount: GrantID?
        var grant: GrantID?
    }

    struct Question {
        let action: Action
        let text: String
        /// What is said while it is under way.
        let progress: String
    }

    var size = Size(rows: 24, columns: 80)
    /// Seconds between two looks.
    let delay: Double
    var snapshot: TopSnapshot?
    private(set) var rates: [TopRates.Source: TopRates] = [:]
    var order = Order.name
    var window = ListWindow()
    var question: Question?
    var isHelping = false
    /// Grants and views are shown that have it in their name or directory.
    private(set) var filter = ""
    /// It is being typed.
    private(set) var isFiltering = false
    /// Revoked and expired grants are not shown.
    private(set) var hidesWithdrawn = false
    var message = ""
    /// Why what is to be seen is old.
    var failure: String?
    private var selected: Place?
    /// Columns that the longest name would take.
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
        if isHelping {
            isHelping = false
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
        case .character("?"), .character("h"), .function(1): isHelping = true
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

    /// Takes a key while the filter is being typed; false for one that has to do with the list, which goes on.
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

    var rows: [Place] {
        (snapshot?.sections ?? []).flatMap { section -> [Place] in
            let place = Place(view: section.view, mount: section.mount)
            let isMeant = has(section.view.description) || has(VisibleText.of(section.mountpoint))
            let grants = section.grants.filter { row in
                if hidesWithdrawn, row.state == .revoked || row.state == .expired { return false }
                return isMeant || has(VisibleText.of(row.name.bytes)) || has(VisibleText.of(row.path))
            }
            if grants.isEmpty, !isMeant { return [] }
            return [place] + grants.map { Place(view: section.view, mount: section.mount, grant: $0.id) }
        }
    }

    private func has(_ text: String) -> Bool { filter.isEmpty || TextSearch.does(text.lowercased(), contain: filter.lowercased()) }

    /// Grants that are there and not shown.
    var hiddenCount: Int { (snapshot?.sections ?? []).reduce(0) { $0 + $1.grants.count } - rows.count { $0.grant != nil } }

    func section(of place: Place) -> TopSnapshot.Section? {
        snapshot?.sections.first { $0.view == place.view && $0.mount == place.mount }
    }

    func row(of place: Place) -> TopSnapshot.Row? { section(of: place)?.grants.first { $0.id == place.grant } }

    var current: Place? {
        let rows = rows
        return window.selected < rows.count ? rows[window.selected] : nil
    }

    private mutating func remember() { selected = current }

    /// Keeps what is selected where it has gone to.
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
