import Glibc
import GrantAdministration
import GrantModel
import GrantStore
import GrantSystem

/// The mount of the grants of one cache mode, and what the names in it lead to.
final class PartMount {
    let mode: CacheMode
    let temporary: TemporaryMount
    /// The earliest time (`Clock.monotonic`) for the next attempt to start its daemon.
    var notBefore: Int64 = 0
    /// What the names led to at the last look.
    private var seen: [GrantID: PartCheck.Seen] = [:]
    /// The last look, which may not have ended.
    private var last: PartCheck?
    /// The earliest time for the next one.
    private var nextLook: Int64 = 0
    /// How many looks there were since some grant was seen by none.
    private var attempts = 0

    /// The intervals between looks, and between those at grants that were never seen, as long as there are few of these: nanoseconds.
    private static let (interval, shortInterval): (Int64, Int64) = (1_000_000_000, 50_000_000)
    private static let shortAttempts = 20

    init(_ mode: CacheMode, in store: GrantStore) throws(GrantError) {
        self.mode = mode
        temporary = try TemporaryMount.create(in: store, hasOwnView: false)
    }

    var mountpoint: [UInt8] { Array(temporary.mountpoint.utf8) }

    /// What the grant's name led to at the last look; nil as long as there was none since the daemon has read what is recorded now.
    func sight(of wanted: WantedGrant) -> PartCheck.Sight? {
        guard let seen = seen[wanted.grant.id], seen.grant == wanted else { return nil }
        return seen.sight
    }

    /// Takes what was seen, and has a thread look again when that is due: at once for grants that were never seen as they are now, and once a
    /// second for all. Returns whether something new is to be expected soon.
    ///
    /// `grants`: all that are wanted of this mode. `main`: the mount that they are mounted in. `directory`: the store's directory of sockets.
    func look(at grants: [WantedGrant], for main: MountRecord, _ directory: String) -> Bool {
        let now = Clock.monotonic
        let hasEnded = last.map { $0.ended != nil } ?? true
        for new in last?.take() ?? [] { seen[new.grant.grant.id] = new }
        seen = seen.filter { id, _ in grants.contains { $0.grant.id == id } }
        if !hasEnded { return now < (last?.begun ?? 0) + Self.interval }
        guard let record = grants.first?.part else { return false }
        let new = grants.filter { sight(of: $0) == nil }
        if new.isEmpty { attempts = 0 }
        let isUnfinished = !new.isEmpty && attempts < Self.shortAttempts
        if now < nextLook, new.isEmpty || attempts > 0 { return isUnfinished }
        if !new.isEmpty { attempts += 1 }
        nextLook = now + (isUnfinished ? Self.shortInterval : Self.interval)
        let check = PartCheck(in: record, for: main, directory, notBefore: last?.isForgotten ?? 0)
        last = check
        check.start(at: grants, new: new)
        return true
    }

    /// Has the next look be made as soon as there is none.
    func doubt() { nextLook = 0 }
}
