import GrantModel
import GrantTerminal

/// A directory that was marked, and what is to be granted of it.
public struct PickerChoice: Sendable, Equatable {
    /// Whether it may be granted.
    public enum Finding: Sendable, Equatable {
        case open
        case fine
        case refused(String)
    }

    /// A name in a view.
    public struct Place: Hashable, Sendable {
        public var view: ViewName
        public var name: GrantName
        public init(view: ViewName, name: GrantName) { (self.view, self.name) = (view, name) }
    }

    public let path: [UInt8]
    /// nil as long as it has none: `/` has no name of its own.
    public var name: GrantName?
    public var view: ViewName
    public var access: Access
    /// When it ends by itself, as somebody wrote it: `2h` is counted from when it is granted. nil when it does not.
    public var expiry: String?
    public var finding = Finding.open

    init(path: [UInt8], view: ViewName, access: Access, expiry: String? = nil) {
        (self.path, self.view, self.access, self.expiry) = (path, view, access, expiry)
        name = try? GrantName(entry: Array(path.split(separator: UInt8(ascii: "/")).last ?? []))
    }

    public var place: Place? { name.map { Place(view: view, name: $0) } }
}

extension Picker {
    /// What stands in the way of a choice, for people; nil when nothing is known that does.
    func problem(_ index: Int) -> String? {
        let choice = choices[index]
        if case .refused(let reason) = choice.finding { return reason }
        guard let name = choice.name, let place = choice.place else { return "it has no name of its own: n gives it one" }
        let shown = VisibleText.of(name.bytes)
        let view = VisibleText.of(choice.view.description)
        if taken.contains(place) { return "the view “\(view)” has a grant “\(shown)” already" }
        let isTwice = choices.indices.contains { $0 != index && choices[$0].place == place }
        return isTwice ? "“\(shown)” is chosen twice in the view “\(view)”" : nil
    }
}
