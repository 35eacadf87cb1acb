import GrantAdministration
import GrantCommandLine
import GrantCommandSupport
import GrantModel

/// The output of `grantfs list --all-users`.
enum InventoryText {
    /// Returns the exit status: 1 if a store could not be read.
    static func show(_ stores: [MachineInventory.Found], view: ViewName?, all: Bool, asJSON: Bool) throws(GrantError) -> Int32 {
        let chosen = stores.map { store in (store, store.grants.filter { isWanted($0, view, all) }) }
        if asJSON {
            try Terminal.print(JSON.array(chosen.map { .object(document($0, $1)) }).text)
        } else {
            try show(chosen)
        }
        return stores.contains { $0.problem != nil } ? 1 : 0
    }

    private static func isWanted(_ grant: JSON, _ view: ViewName?, _ all: Bool) -> Bool {
        if let view, grant.member("view")?.stringValue != view.description { return false }
        return all || grant.member("state")?.stringValue == "active"
    }

    private static func document(_ store: MachineInventory.Found, _ grants: [JSON]) -> [(String, JSON)] {
        var keys: [(String, JSON)] = [("uid", .unsigned(UInt64(store.uid)))]
        keys.append(("user", PolicyUser(uid: store.uid).name.map { .string($0) } ?? .null))
        keys += JSON.members("store", store.directory)
        keys.append(("problem", store.problem.map { .string($0) } ?? .null))
        return keys + [("grants", .array(grants)), ("mounts", .array(store.mounts))]
    }

    private static func show(_ stores: [(MachineInventory.Found, [JSON])]) throws(GrantError) {
        var table = Table(header: ["USER", "NAME", "VIEW", "ACCESS", "STATE", "EXPIRES", "PATH", "STORE"])
        var rows = 0
        for (store, grants) in stores {
            let user = PolicyUser(uid: store.uid).name ?? String(store.uid)
            for grant in grants {
                let columns = ["name", "view", "access", "state", "expires", "path"].map { grant.member($0)?.stringValue ?? "never" }
                table.add(([user] + columns).map { Terminal.visible($0) } + [Terminal.visible(store.directory)])
                rows += 1
            }
        }
        if rows > 0 { try Terminal.print(table.text(colour: Terminal.hasColour(Terminal.standardOutput))) }
        for (store, _) in stores {
            guard let problem = store.problem else { continue }
            Terminal.note(
                "the store \(String(decoding: store.directory, as: UTF8.self)) of \(PolicyUser(uid: store.uid).name ?? String(store.uid)): \(problem)"
            )
        }
        if rows == 0 { Terminal.note("there are no grants in the stores that can be found") }
    }
}
