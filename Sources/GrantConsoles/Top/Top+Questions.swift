import GrantModel
import GrantTerminal

extension Top {
    /// Asks for confirmation before a key's action is applied to the selected row.
    mutating func ask(_ key: Key) {
        guard let place = current else { return message = "there is nothing here" }
        if key == .character("u") { return askToUnmount(place) }
        guard let row = row(of: place) else { return message = "that is for a grant: choose one with ↑ and ↓" }
        let name =
            "“\(VisibleText.of(row.name.bytes))” (\(row.id.description.prefix(12))) in the view “\(VisibleText.of(place.view.description))”"
        let short = "“\(VisibleText.of(row.name.bytes))”"
        switch key {
        case .character("r") where row.state == .revoked: message = "\(short) is revoked already"
        case .character("r"): question = Question(action: .revoke(row.id), text: "Revoke \(name)?", progress: "revoking \(short)…")
        case .character("e") where row.state == .active || row.state == .unavailable: message = "\(short) is not revoked"
        case .character("e"): question = Question(action: .restore(row.id), text: "Restore \(name)?", progress: "restoring \(short)…")
        default:
            let access: Access = row.access == .readOnly ? .readWrite : .readOnly
            let verb = access == .readOnly ? "Narrow" : "Widen"
            question = Question(
                action: .set(row.id, access), text: "\(verb) \(name) to \(access.rawValue)?",
                progress: "making \(short) \(access.rawValue)…")
        }
    }

    private mutating func askToUnmount(_ place: RowID) {
        guard let section = section(of: place), section.mount != nil else { return message = "this view is not mounted" }
        let mountpoint = VisibleText.of(section.mountpoint)
        question = Question(
            action: .unmount(section.mountpoint), text: "Unmount the view “\(VisibleText.of(place.view.description))” at \(mountpoint)?",
            progress: "unmounting \(mountpoint)…")
    }
}
