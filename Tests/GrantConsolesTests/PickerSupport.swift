import GrantModel
import Testing
import GrantTerminal

@testable import GrantConsoles
@testable import GrantAdministration
@testable import GrantMounts

func bytes(_ text: String) -> [UInt8] { Array(text.utf8) }

/// A picker in /d, which has the named directories and links.
func picker(_ directories: [String], links: [String] = [], access: Access = .readWrite) -> Picker {
    var picker = Picker(start: bytes("/d"), view: .standard, access: access)
    do {
        let effects = picker.begin(Size(rows: 24, columns: 80))
        #expect(effects == [.list(bytes("/d"), number: 1)])
    }
    picker.handle(listed("/d", directories, links, number: 1))
    return picker
}

func listed(_ path: String, _ directories: [String], _ links: [String] = [], number: Int) -> Picker.Answer {
    let listing = DirectoryListing(path: bytes(path), directories: directories.map(bytes), links: links.map(bytes))
    return .listed(PickerEntries(listing, links: listing.links), number: number)
}

extension Picker {
    /// Types a text and hits keys. Returns the request of the last key.
    @discardableResult
    mutating func hit(_ text: String = "", _ keys: Key...) -> [Effect] {
        var effects: [Effect] = []
        for scalar in text.unicodeScalars { effects = handle(.character(scalar)) }
        for key in keys { effects = handle(key) }
        return effects
    }

    var selectedName: String? { row(window.selected).map { String(decoding: $0.name, as: UTF8.self) } }
    var text: String { frame(size).text }
    var markedPaths: [String] { choices.map { String(decoding: $0.path, as: UTF8.self) } }
}

/// Hits the keys, and compares what the last one asked for.
func expect(_ effects: [Picker.Effect], from picker: inout Picker, _ keys: Key..., at place: SourceLocation = #_sourceLocation) {
    var given: [Picker.Effect] = []
    for key in keys { given = picker.handle(key) }
    #expect(given == effects, sourceLocation: place)
}
