import Foundation
import Glibc
import TestSupport
import Testing

extension MountTests {
    /// What root sees of the grants of all users.
    ///
    /// One after another: a test stops the processes that look at the stores of a user.
    @Suite(.serialized, .enabled(if: Identity.isRoot, "needs root")) struct Inventory {
        private struct Store: Decodable {
            let uid: UInt32
            let user: String?
            let store: String
            let problem: String?
            let grants: [GrantDocument]
            let mounts: [Mount]

            struct Mount: Decodable { let mountpoint: String }
        }
        private struct GrantDocument: Decodable {
            let name: String
            let view: String
            let path: String
            let state: String
        }

        private let machine: PolicyMachine
        private let ann = PolicyMachine.ann
        private let ben = PolicyMachine.ben

        init() throws { machine = try PolicyMachine() }

        /// In the place where users have their stores.
        private func grantfs(_ words: String..., as identity: Identity) throws -> Output {
            try machine.run(
                [Programs.grantfs(for: ann)] + words, as: identity, store: machine.home(identity) + "/.local/share/grantfs")
        }

        /// Those of this test's machine, and the exit status.
        private func stores(_ words: String..., script: String = "true") throws -> (found: [Store], status: Int32) {
            let output = try machine.run(
                [Programs.grantfs(for: ann), "list", "--all-users", "--json"] + words, script: script)
            return (try output.decoded(as: [Store].self).filter { $0.store.hasPrefix(machine.fixture.base) }, output.status)
        }

        @Test("`list --all-users` shows root the grants of every user")
        func everybody() throws {
            try grantfs("grant", machine.home(ann) + "/src", as: ann).orThrow()
            try grantfs("grant", machine.home(ann) + "/src", "--name", "gone", "--view", "other", as: ann).orThrow()
            try grantfs("revoke", "gone", as: ann).orThrow()
            try grantfs("grant", machine.home(ben) + "/src", "--name", "b", as: ben).orThrow()
            let (found, status) = try stores()
            #expect(status == 0 && found.allSatisfy { $0.problem == nil }, "\(found)")
            #expect(found.map(\.user) == ["ann", "ben"] && found.map(\.uid) == [ann.uid, ben.uid])
            #expect(found.first?.grants.map(\.name) == ["src"] && found.first?.grants.first?.path == machine.home(ann) + "/src")
            #expect(try stores("--all").found.first?.grants.map(\.state) == ["active", "revoked"])
            #expect(try stores("--all", "--view", "other").found.map(\.grants.count) == [1, 0])
            let people = try machine.grantfs("list", "--all-users").orThrow().text
            #expect(people.contains("ann") && people.contains(machine.home(ben) + "/src"), "\(people)")
            #expect(try grantfs("list", "--all-users", as: ann).status == 1)
        }

        @Test("`list --all-users` reports a damaged store, leaves it unchanged and goes on")
        func damaged() throws {
            for identity in [ann, ben] { try grantfs("grant", machine.home(identity) + "/src", as: identity).orThrow() }
            let database = machine.home(ann) + "/.local/share/grantfs/grants.sqlite"
            try Command.shell("rm -f \"$1-wal\" \"$1-shm\"; printf 'no database, and long enough to be looked at' >\"$1\"", database)
            let before = try Data(contentsOf: URL(fileURLWithPath: database))
            let (found, status) = try stores()
            #expect(status == 1 && found.map(\.uid).sorted() == [ann.uid, ben.uid], "\(found)")
            #expect(found.first { $0.uid == ann.uid }?.problem?.isEmpty == false)
            #expect(found.first { $0.uid == ben.uid }?.grants.count == 1)
            #expect(try Data(contentsOf: URL(fileURLWithPath: database)) == before)
            let people = try machine.grantfs("list", "--all-users")
            #expect(people.status == 1 && people.errors.contains("\(machine.home(ann))/.local/share/grantfs of ann: "), "\(people)")
        }

        @Test("A link in a user's home leads `list --all-users` to no file of root")
        func links() throws {
            try machine.grantfs("grant", machine.fixture.source("secret")).orThrow()
            // ann's store is a link to root's. ben's own directory has root's files in it.
            try Command.shell(
                """
                mkdir -p "$1/ann/.local/share" "$1/ben/.local/share/grantfs"
                ln -s "$2" "$1/ann/.local/share/grantfs"
                cp -a "$2/." "$1/ben/.local/share/grantfs"
                chown -R ben:ben "$1/ben/.local" || chown -R 61002:61002 "$1/ben/.local"
                chown 0 "$1/ben/.local/share/grantfs/grants.sqlite"
                """, machine.fixture.base + "/home", machine.fixture.store)
            let (found, status) = try stores()
            #expect(status == 1 && found.allSatisfy { $0.grants.isEmpty && $0.problem != nil }, "\(found)")
        }

        @Test("`list --all-users` finds the store of a running daemon anywhere")
        func daemons() throws {
            let fixture = try MountFixture(owner: try #require(Machine.plainUser))
            guard Machine.usersCanMount else { return }
            try fixture.grant(try fixture.source("a"))
            let mountpoint = try fixture.mount()
            let output = try Command.run([Programs.grantfs, "list", "--all-users", "--json"])
            let store = try #require(try output.decoded(as: [Store].self).first { $0.store == fixture.store }, "\(output)")
            #expect(store.uid == fixture.owner.uid && store.problem == nil && store.grants.map(\.name) == ["a"])
            #expect(store.mounts.map(\.mountpoint) == [mountpoint])
        }

        /// As ann: keeps a few stores open, as a daemon would, locks another, for which each process that looks at it has to wait, and
        /// stops such processes. Says whether it could open the descriptors of one.
        private static let stopper = """
            import ctypes, os, signal, sqlite3, sys
            database = sqlite3.connect(sys.argv[2], isolation_level=None)
            database.execute('pragma locking_mode=exclusive')
            database.execute('begin exclusive')
            database.execute('create table lock(x)')
            for number in range(4):
                os.makedirs(f'{sys.argv[1]}/{number}')
                os.open(f'{sys.argv[1]}/{number}/grants.sqlite', os.O_RDWR | os.O_CREAT, 0o600)
            ctypes.CDLL(None).prctl(15, b'grantfs', 0, 0, 0)
            print('ready', flush=True)
            while True:
                for name in os.listdir('/proc'):
                    if not name.isdigit() or int(name) == os.getpid(): continue
                    try:
                        with open(f'/proc/{name}/cmdline', 'rb') as file: words = file.read()
                        if b'\\0inventory\\0' not in words: continue
                        os.kill(int(name), signal.SIGSTOP)
                        try: print('opened', os.readlink(f'/proc/{name}/fd/3'), flush=True)
                        except PermissionError: print('stopped', flush=True)
                    except OSError: pass
            """

        @Test("`list --all-users` spends one deadline on a user who stalls it", .timeLimit(.minutes(2)))
        func stalled() throws {
            for identity in [ann, ben] { try grantfs("grant", machine.home(identity) + "/src", as: identity).orThrow() }
            let stopper = try Child(
                machine.command(
                    [
                        "python3", "-c", Self.stopper, machine.home(ann) + "/open",
                        machine.home(ann) + "/.local/share/grantfs/grants.sqlite",
                    ], as: ann))
            try stopper.expect("ready")
            let start = Machine.milliseconds
            let (found, status) = try stores()
            // Four stores at 10 s each would be 40 s.
            #expect(Machine.milliseconds - start < 25_000 * Machine.slowness)
            #expect(status == 1 && found.first { $0.uid == ben.uid }?.grants.map(\.name) == ["src"], "\(found)")
            #expect(found.filter { $0.uid == ann.uid }.allSatisfy { $0.problem != nil }, "\(found)")
            #expect(stopper.line() == "stopped")
        }
    }
}
