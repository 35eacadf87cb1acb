import GrantAdministration
import GrantModel
import GrantStore
import GrantSystem

/// `grantfs inventory`: the process that looks at one user's store, as that user, for `grantfs list --all-users`.
///
/// It may do what that user may and nothing else, so no link and no file of that user's leads it to where only root may go. It has nothing of root's but the
/// pipe that it answers on.
enum InventoryCommand {
    static let declaration = CommandDeclaration(
        "inventory", "Says on descriptor 3 what the store has on record.", isHidden: true, run: run)

    private static func run(_ arguments: ParsedArguments) throws(GrantError) -> Int32 {
        let answer = FileDescriptor(owning: 3)
        try Terminal.answer(document(try arguments.storeDirectory()).text, on: answer.number)
        return 0
    }

    /// `problem`, or the `store` with its `grants` and `mounts`; neither where there is no store. Nothing is looked at but the store.
    private static func document(_ directory: String) -> JSON {
        do throws(GrantError) {
            let store = try GrantStore(inspecting: directory)
            let now = Instant(nanoseconds: Clock.realtime)
            let grants = try store.grants().map { grant -> JSON in
                var keys = JSON.identity(grant)
                keys += JSON.members("path", grant.bookmark.path)
                keys += [("access", .string(grant.access.rawValue)), ("state", .string(grant.state(at: now).rawValue))]
                return .object(keys + [("created", JSON.time(grant.created)), ("expires", JSON.time(grant.expires))])
            }
            let mounts = try store.mounts().map { record -> JSON in
                .object([("view", .string(record.view.description))] + JSON.members("mountpoint", record.mountpoint))
            }
            return .object([("store", .string(store.directory)), ("grants", .array(grants)), ("mounts", .array(mounts))])
        } catch {
            return error.code == .notFound ? .object([]) : .object([("problem", .string(error.description))])
        }
    }
}
