import GrantModel
import GrantSystem

/// The paths at which a sandbox shows parts of the machine.
///
/// No path is inside another one: a program that can write to the outer one could redirect the next mount.
struct SandboxLayout {
    /// The path of the view.
    let view: [UInt8]
    /// Directories of the view that are also shown at their own paths, by their names in the view.
    private(set) var directories: [(name: GrantName, path: [UInt8])] = []
    private(set) var binds: [SandboxBind] = []
    /// Where the view is shown as well: its mountpoint outside.
    private(set) var mountpoint: [UInt8]?

    init(view: [UInt8]) { self.view = view }

    /// All paths beside the system's and the view's.
    var places: [[UInt8]] { directories.map(\.path) + binds.map(\.place) + (mountpoint.map { [$0] } ?? []) }

    /// Shows a directory of the view at its own path too. Returns why not, for people, or nil if it
    /// does.
    mutating func show(_ name: GrantName, at path: [UInt8]) -> String? {
        if let obstacle = obstacle(path) { return obstacle }
        if let other = places.first(where: { overlap($0, path) }) {
            return "it overlaps “\(String(decoding: other, as: UTF8.self))”, and one place lies in the other"
        }
        directories.append((name, path))
        return nil
    }

    /// Shows the view at its mountpoint too, if that place is free: there others have told the program to look.
    mutating func show(mountpoint: [UInt8]) {
        if obstacle(mountpoint) == nil, !places.contains(where: { overlap($0, mountpoint) }) { self.mountpoint = mountpoint }
    }

    /// Adds a bind. Throws `.usage` if its path is not available.
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

    /// Returns the program's working directory: the caller's, if it is shown at its own path, otherwise the view.
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
