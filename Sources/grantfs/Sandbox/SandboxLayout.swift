import GrantModel
import GrantSystem

/// Where in a sandbox what is shown of the machine has its place.
///
/// No place lies in another one: what a program may write to would decide there where the next thing is mounted.
struct SandboxLayout {
    /// Where the view is.
    let view: [UInt8]
    /// The directories of the view that are at their own paths as well, by their names in the view.
    private(set) var directories: [(name: GrantName, path: [UInt8])] = []
    private(set) var binds: [SandboxBind] = []

    init(view: [UInt8]) { self.view = view }

    /// What there is beside the system, but for the view.
    var places: [[UInt8]] { directories.map(\.path) + binds.map(\.place) }

    /// Shows a directory of the view at its own path too. Why not, in words for people; nil when it is there.
    mutating func show(_ name: GrantName, at path: [UInt8]) -> String? {
        if let obstacle = obstacle(path) { return obstacle }
        if let other = places.first(where: { overlap($0, path) }) {
            return "“\(String(decoding: other, as: UTF8.self))” is there, and one place lies in the other"
        }
        directories.append((name, path))
        return nil
    }

    /// Binds it. `.usage` when it has no place.
    mutating func bind(_ bind: SandboxBind) throws(GrantError) {
        let shown = String(decoding: bind.place, as: UTF8.self)
        if let obstacle = obstacle(bind.place) {
            throw GrantError(.usage, "“\(shown)” cannot be shown at its own path", cause: obstacle)
        }
        if binds.contains(where: { MountTable.path(bind.place, isAtOrBelow: $0.place) }) { return }
        if let other = places.first(where: { overlap($0, bind.place) }) {
            throw GrantError(
                .usage, "“\(shown)” cannot be shown at its own path",
                cause: "“\(String(decoding: other, as: UTF8.self))” is shown as well, and one place lies in the other",
                advice: "name the directories beside it one by one")
        }
        binds.append(bind)
    }

    /// Where the program starts: in the caller's own directory, if it is shown at its own path, else in the view.
    func start(from current: [UInt8]?) -> [UInt8] {
        guard let current, directories.contains(where: { MountTable.path(current, isAtOrBelow: $0.path) }) else { return view }
        return current
    }

    private func obstacle(_ path: [UInt8]) -> String? {
        if let obstacle = SandboxPlaces.obstacle(path) { return obstacle }
        return overlap(path, view) ? "the view is at \(String(decoding: view, as: UTF8.self))" : nil
    }

    private func overlap(_ one: [UInt8], _ other: [UInt8]) -> Bool {
        MountTable.path(one, isAtOrBelow: other) || MountTable.path(other, isAtOrBelow: one)
    }
}
