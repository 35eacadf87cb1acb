import GrantAdministration
import GrantModel
import GrantStore
import GrantSystem

/// `grantfs inventory`: the process that reads one user's store, as that user, for `grantfs list --all-users`.
///
/// It has only that user's rights, so none of that user's links and files can lead it to where only root may go. All it has of root's
/// is the pipe for its answer.
enum InventoryCommand {
    static let declaration = CommandDeclaration(
        "inventory", "Says on descriptor 3 what the store has on record.", isHidden: true, run: run)

    private static func run(_ arguments: ParsedArguments) throws(GrantError) -> Int32 {
        let answer = FileDescriptor(owning: 3)
        try Terminal.answer(document(try arguments.storeDirectory()).text, on: answer.number)
        return 0
    }

    /// Returns `problem`, or the `store` with its `grants` and `mounts`; neither if there is no store. Looks at nothing but the store.
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
