import GrantAdministration
import GrantModel
import GrantTerminal

extension Picker {
    /// `./` and `../`, above the entries unless a filter is set.
    private var fixedRows: [PickerEntry] {
        guard filter.text.isEmpty else { return [] }
        let here = PickerEntry(Array(".".utf8), .here)
        return path == [UInt8(ascii: "/")] ? [here] : [here, PickerEntry(Array("..".utf8), .above)]
    }

    var rowCount: Int { fixedRows.count + places.count }

    func row(_ index: Int) -> PickerEntry? {
        let fixed = fixedRows
        if index < fixed.count { return fixed[index] }
        guard case .entries(let entries) = content, index - fixed.count < places.count else { return nil }
        return entries.all[places[index - fixed.count]]
    }

    /// Returns the path of a row, which is canonical unless it is a link.
    func path(of entry: PickerEntry) -> [UInt8] {
        switch entry.kind {
        case .here: path
        case .above: CanonicalPath.parent(of: path)
        case .directory, .link, .unknownLink: CanonicalPath.join(path, entry.name)
        }
    }

    mutating func browse(_ key: Key) -> [Effect] {
        if window.handle(key, count: rowCount, height: bodyHeight) { return [] }
        switch key {
        case .escape: return [.cancel]
        case .tab, .function(2): return goToReview()
        case .function(1): page = .help
        case .control("t"):
            showsHidden.toggle()
            search(narrowing: false)
        case .character(" "):
            mark()
        case .insert:
            mark()
            _ = window.handle(.down, count: rowCount, height: bodyHeight)
        case .enter, .right: return openSelected(key)
        case .left: return goUp()
        case .backspace where filter.text.isEmpty: return goUp()
        case .backspace, .control("u"), .character:
            let before = filter.text
            _ = filter.handle(key)
            if filter.text != before { search(narrowing: filter.text.hasPrefix(before) && !before.isEmpty && before.first != ".") }
        default: break
        }
        return []
    }

    /// Lists a directory, and selects `name` in it.
    mutating func open(_ directory: [UInt8], selecting name: [UInt8]? = nil) -> [Effect] {
        number += 1
        path = directory
        content = .loading
        (filter, places, window, wanted) = (LineEditor(), [], ListWindow(), name)
        return [.list(directory, number: number)]
    }

    mutating func list(_ entries: PickerEntries) {
        // A second answer for the same directory adds knowledge of its links. The selection is
        // kept.
        let selected = row(window.selected)
        let isFirst = if case .entries = content { false } else { true }
        path = entries.path
        content = .entries(entries)
        places = entries.places(filter: filter.text, hidden: showsHidden)
        let name = isFirst ? wanted : selected?.name
        if let name, let index = (0..<rowCount).first(where: { row($0)?.name == name }) {
            window.select(index)
        } else if isFirst {
            window.select(min(fixedRows.count, max(0, rowCount - 1)))
        }
        show()
    }

    private mutating func search(narrowing: Bool) {
        guard case .entries(let entries) = content else { return }
        places = entries.places(filter: filter.text, hidden: showsHidden, narrowing: narrowing ? places : nil)
        window.select(min(fixedRows.count, max(0, rowCount - 1)))
        show()
    }

    /// The directory of a path that was typed as a filter, or nil if a name was.
    var typedPath: [UInt8]? {
        let text = Array(filter.text.utf8)
        if let home, text == [0x7E] || text.starts(with: [0x7E, 0x2F]) { return CanonicalPath.plain(home + text.dropFirst()) }
        guard text.contains(0x2F) else { return nil }
        return CanonicalPath.plain(text.first == 0x2F ? text : CanonicalPath.join(path, text))
    }

    private mutating func openSelected(_ key: Key) -> [Effect] {
        if key == .enter, let typedPath { return open(typedPath) }
        guard let entry = row(window.selected) else { return [] }
        switch entry.kind {
        case .here:
            if key == .right { return [] }
            if !isMarked(path) { mark() }
            return goToReview()
        case .above: return goUp()
        case .directory, .link, .unknownLink: return open(path(of: entry))
        }
    }

    private mutating func goUp() -> [Effect] {
        let name = path.split(separator: UInt8(ascii: "/")).last
        return name == nil ? [] : open(CanonicalPath.parent(of: path), selecting: name.map { Array($0) })
    }

    func isMarked(_ path: [UInt8]) -> Bool { choices.contains { $0.path == path } }

    /// Marks the selected row, or unmarks it.
    private mutating func mark() {
        guard let entry = row(window.selected) else { return }
        let path = path(of: entry)
        switch entry.kind {
        case .above: message = "../ is marked where it is listed: ← goes there"
        case .link, .unknownLink:
            message = "a symbolic link is not followed, so it is not marked: → opens what it leads to"
        case .here where !isListed: message = "an unreadable directory cannot be granted"
        case .here, .directory:
            if let index = choices.firstIndex(where: { $0.path == path }) {
                choices.remove(at: index)
            } else {
                choices.append(PickerChoice(path: path, view: view, access: access, expiry: expiry))
            }
        }
    }

    private var isListed: Bool { if case .entries = content { true } else { false } }

    private mutating func goToReview() -> [Effect] {
        if choices.isEmpty { mark() }
        guard !choices.isEmpty else {
            if message.isEmpty { message = "nothing is marked" }
            return []
        }
        page = .reviewing
        for index in choices.indices { choices[index].finding = .open }
        reviewWindow = ListWindow()
        return [.look(choices.map(\.path))]
    }
}
