import Glibc
import GrantModel
import GrantSystem

/// The names at the root of the mount.
///
/// Locking: one lock around the table, rank 2; lookups of grants are few, because the kernel keeps what it found.
public final class RootDirectory: Sendable {
    /// What stands behind a name.
    public enum Place: Sendable {
        case open(Scope)
        /// Revoked or expired: EACCES, not listed.
        case refused(GrantID)
    }

    /// Lookups of a refused name, and who came last.
    public struct Refusals: Sendable {
        public var count: UInt64 = 0
        public var uid: UInt32 = 0
        /// The process's, and its name: see `ProcessName.ofProcess`.
        public var pid: Int32 = 0
        public var program: [UInt8] = []
    }

    private struct Table {
        var refusals: [GrantID: Refusals] = [:]
        var places: [GrantName: Place] = [:]
        /// Until when (`Clock.monotonic`) the kernel may believe what a grant's name led to before it was taken away.
        var lapses: [GrantID: Int64] = [:]
        var changed: Int64 = Clock.realtime
        /// Counts the changes, and what `open` said last.
        var version: UInt64 = 1
        var listed: (version: UInt64, open: [(name: GrantName, scope: Scope)])?
    }

    private let table = Lock(Table())

    /// So many nanoseconds after a name was looked up it is certain that the kernel asks for it again: `ViewFS.nameTimeout`, which the kernel rounds up to
    /// its ticks (fs/fuse/dir.c, fuse_time_to_jiffies), the slowest of which take 10 ms, and the way of the answer.
    private static let lapse: Int64 = 80_000_000

    public func place(_ name: GrantName) -> Place? { table.withLock { $0.places[name] } }

    /// What a lookup finds: the kernel may believe it for a moment.
    func lookup(_ name: GrantName) -> Place? {
        table.withLock { table in
            let place = table.places[name]
            if case .open(let scope) = place { scope.named.store(Clock.monotonic, ordering: .relaxed) }
            return place
        }
    }

    /// Until when (`Clock.monotonic`) names of these grants may lead where they led before the last change.
    public func lapse(of grants: some Sequence<GrantID>) -> Int64 {
        table.withLock { table in grants.reduce(0) { max($0, table.lapses[$1] ?? 0) } }
    }

    /// Until when (`Clock.monotonic`) the kernel may believe by itself what a scope's name led to, if nothing is said of it from now on.
    func believed(_ scope: Scope) -> Int64 { scope.named.load(ordering: .relaxed) + Self.lapse }

    /// Puts `place` behind `name`; nil takes the name away. Returns what was there.
    @discardableResult
    public func set(_ name: GrantName, _ place: Place?) -> Place? {
        table.withLock { table in
            table.changed = Clock.realtime
            table.version += 1
            table.listed = nil
            defer { table.places[name] = place }
            if case .open(let scope) = table.places[name] {
                let now = Clock.monotonic
                table.lapses = table.lapses.filter { $0.value > now }
                let lapse = scope.named.load(ordering: .relaxed) + Self.lapse
                if lapse > now { table.lapses[scope.grant] = lapse }
            }
            return table.places[name]
        }
    }

    /// Counts a refused lookup.
    func note(refusal grant: GrantID, uid: UInt32, thread: Int32) {
        let (pid, program) = ProcessName.ofProcess(withThread: thread)
        table.withLock { table in
            let count = table.refusals[grant]?.count ?? 0
            table.refusals[grant] = Refusals(count: count &+ 1, uid: uid, pid: pid, program: program)
        }
    }

    /// The refused lookups since the last call.
    public func takeRefusals() -> [GrantID: Refusals] {
        table.withLock { table in
            defer { table.refusals = [:] }
            return table.refusals
        }
    }

    /// Name and scope of all that is listed, in the order of their scopes' numbers, which never come twice. Put in order once after each change,
    /// because every listing and every look at the root's attributes asks for it.
    public var open: [(name: GrantName, scope: Scope)] {
        let (version, listed) = table.withLock { ($0.version, $0.listed?.open) }
        if let listed { return listed }
        let all = table.withLock { table in
            table.places.compactMap { name, place -> (name: GrantName, scope: Scope)? in
                if case .open(let scope) = place { (name, scope) } else { nil }
            }
        }
        let open = all.sorted { $0.scope.id.rawValue < $1.scope.id.rawValue }
        table.withLock { table in if table.version == version { table.listed = (version, open) } }
        return open
    }

    /// Changes whenever a name comes or goes; never 0.
    var version: UInt64 { table.withLock { $0.version } }

    /// What a lookup may go by for a moment yet, and when a name last came or went.
    func handOver(to state: inout HandoverWriter) {
        let (changed, lapses) = table.withLock { ($0.changed, $0.lapses) }
        state.put(changed)
        state.put(UInt64(truncatingIfNeeded: lapses.count))
        for (grant, lapse) in lapses {
            state.put(grant: grant)
            state.put(lapse)
        }
    }

    /// The names come back by `set`, and then `changed` is set to this.
    func takeOver(from state: inout HandoverReader) throws(Errno) {
        let changed: Int64 = try state.take()
        var lapses: [GrantID: Int64] = [:]
        for _ in 0..<(try state.takeCount(ofAtLeast: 8)) {
            let (grant, lapse): (GrantID, Int64) = (try state.takeGrant(), try state.take())
            lapses[grant] = lapse
        }
        table.withLock { ($0.changed, $0.lapses) = (changed, lapses) }
    }

    /// Puts a grant's name back that another daemon has shown: nothing has changed.
    public func takeOver(_ name: GrantName, _ scope: Scope) {
        table.withLock { table in
            table.places[name] = .open(scope)
            table.listed = nil
        }
    }

    /// When a name last came or went, in nanoseconds since 1970.
    public var changed: Int64 { table.withLock { $0.changed } }
}
