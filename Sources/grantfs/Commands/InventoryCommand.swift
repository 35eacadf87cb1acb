import CGrantSystem
import Glibc
import GrantAdministration
import GrantCommandLine
import GrantCommandSupport
import GrantModel
import GrantStore
import GrantSystem

/// `grantfs inventory`: the process that reads one user's stores, as that user, for `grantfs list --all-users`.
///
/// It has only that user's rights, so none of that user's links and files can lead it to where only root may go. All it has of root's
/// is the pipe for its answer. It becomes the user by itself, without a program in between, so that the user can never trace it nor
/// open its descriptors.
enum InventoryCommand {
    static func run(_ arguments: ParsedArguments) throws(GrantError) -> Int32 {
        let answer = FileDescriptor(owning: 3)
        setLimits()
        if let word = try arguments.text("as") { try become(word) }
        for store in arguments.operands {
            try Terminal.answer(document(String(decoding: store, as: UTF8.self)).text, on: answer.number)
        }
        return 0
    }

    /// Bounds what a store that its user has made large, or damaged, can use.
    private static func setLimits() {
        for (limit, value) in [(RLIMIT_DATA, 512 << 20), (RLIMIT_CPU, 30), (RLIMIT_CORE, 0)] {
            var values = rlimit(rlim_cur: rlim_t(value), rlim_max: rlim_t(value))
            setrlimit(__rlimit_resource_t(limit.rawValue), &values)
        }
    }

    private static func become(_ word: String) throws(GrantError) {
        guard let uid = UInt32(word), uid != 0 else { throw GrantError(.usage, "inventory: --as is a user other than root") }
        var (group, groups) = (uid, [gid_t]())
        // A user without an entry has only the group of the same number.
        if let entry = getpwuid(uid) {
            group = entry.pointee.pw_gid
            var count = Int32(65_536)
            groups = [gid_t](repeating: 0, count: Int(count))
            guard getgrouplist(entry.pointee.pw_name, group, &groups, &count) >= 0 else {
                throw GrantError(.system, "inventory: the groups of user \(uid) cannot be read")
            }
            groups.removeLast(groups.count - Int(count))
        }
        let result = clinux_become_user(uid, group, groups, groups.count)
        if result < 0 { throw GrantError(.system, "inventory: cannot become user \(uid)", cause: Errno(-result).description) }
    }

    /// Returns `problem`, or the `store` with its `grants` and `mounts`, or an empty object if
    /// there is no store. It looks at nothing but the store.
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
