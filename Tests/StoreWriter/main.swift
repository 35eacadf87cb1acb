// A process that writes to a store, for the tests of several processes at once.
//   StoreWriter insert DIR PREFIX COUNT    inserts COUNT grants named PREFIX0, PREFIX1, …
//   StoreWriter toggle DIR ID              revokes and restores the grant for ever, a line after each that is done
//   StoreWriter starve DIR                 uses up all descriptors but 0, 1, 2 … 7, and says what opening the store anew and reading by the open one give
@preconcurrency import Glibc
import GrantModel
import GrantStore

let arguments = CommandLine.arguments
setvbuf(stdout, nil, _IOLBF, 0)
do {
    let store = try GrantStore(directory: arguments[2], create: true)
    switch arguments[1] {
    case "insert":
        for number in 0..<Int(arguments[4])! {
            let bookmark = Bookmark(
                filesystem: FilesystemIdentity(uuid: [], type: "test"), handle: nil, identity: FileIdentity(inode: 1),
                path: Array("/\(number)".utf8), owner: 0, created: Instant(seconds: 0))
            let grant = Grant(
                id: .random(), view: .standard, name: try GrantName(chosen: Array("\(arguments[3])\(number)".utf8)), bookmark: bookmark,
                access: .readWrite, created: Instant(seconds: 0))
            // Told that the store is busy: another's turn, on a slow disk, was longer than its patience. Nothing was done then.
            while true {
                do throws(GrantError) {
                    try store.insert(grant, by: .current())
                    break
                } catch {
                    if error.code != .storeUnavailable { throw error }
                }
            }
        }
    case "toggle":
        let id = GrantID(arguments[3])!
        while true {
            let activation = try store.restore([id], by: .current())[0].activation
            print("active \(activation)")
            _ = try store.revoke([id], by: .current())
            print("revoked \(activation)")
        }
    case "starve":
        // By reading once it has all that it needs.
        _ = try store.grants()
        var held: [Int32] = []
        for left in 0..<8 {
            while case let next = dup(0), next >= 0 { held.append(next) }
            for _ in 0..<left { close(held.removeLast()) }
            func outcome(_ body: () throws(GrantError) -> Int) -> String {
                do throws(GrantError) {
                    return "\(try body())"
                } catch {
                    return "\(error.code)"
                }
            }
            let opened = outcome { () throws(GrantError) in try GrantStore(directory: arguments[2], create: false).grants().count }
            let read = outcome { () throws(GrantError) in try store.grants().count }
            let revoked = outcome { () throws(GrantError) in try store.revoke(store.grants().map(\.id), by: .current()).count }
            print("\(left) opened: \(opened) read: \(read) revoked: \(revoked)")
        }
    default: exit(2)
    }
} catch {
    print("failed: \(error)")
    exit(1)
}
