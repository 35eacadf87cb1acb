import GrantModel
import GrantTerminal

/// A marked directory, and how to grant it.
public struct PickerChoice: Sendable, Equatable {
    /// Whether it may be granted.
    public enum Finding: Sendable, Equatable {
        case open
        case fine
        case refused(String)
    }

    /// A name in a view.
    public struct Slot: Hashable, Sendable {
        public var view: ViewName
        public var name: GrantName
        public init(view: ViewName, name: GrantName) { (self.view, self.name) = (view, name) }
    }

    public let path: [UInt8]
    /// nil until it has one: `/` has no name of its own.
    public var name: GrantName?
    public var view: ViewName
    public var access: Access
    /// The expiry as it was entered: `2h` counts from the time of granting. It is nil if there is
    /// none.
    public var expiry: String?
    public var finding = Finding.open

    init(path: [UInt8], view: ViewName, access: Access, expiry: String? = nil) {
        (self.path, self.view, self.access, self.expiry) = (path, view, access, expiry)
        name = try? GrantName(entry: Array(path.split(separator: UInt8(ascii: "/")).last ?? []))
    }

    public var slot: Slot? { name.map { Slot(view: view, name: $0) } }
}

extension Picker {
    /// Returns what prevents granting a choice, for people, or nil if nothing is known to.
    func problem(_ index: Int) -> String? {
        let choice = choices[index]
        if case .refused(let reason) = choice.finding { return reason }
        guard let name = choice.name, let slot = choice.slot else { return "it has no name of its own: n gives it one" }
        let shown = VisibleText.of(name.bytes)
        let view = VisibleText.of(choice.view.description)
        if taken.contains(slot) { return "the view “\(view)” has a grant “\(shown)” already" }
        let isTwice = choices.indices.contains { $0 != index && choices[$0].slot == slot }
        return isTwice ? "“\(shown)” is chosen twice in the view “\(view)”" : nil
    }
}
