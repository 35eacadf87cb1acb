import Glibc
import GrantAdministration
import GrantControl
import GrantModel
import GrantStore
import GrantSystem
import GrantViewFS

/// The process behind root's `grantfs mount` of a view in which grants have a cache mode of their own, which a connection of FUSE has as a
/// whole. It starts a daemon for the mount, with a mountpoint for each such grant, and a daemon for each of these modes, and mounts the
/// grants' directories of the latter on the mountpoints.
///
/// It serves no request. The daemons of modes have a temporary mount each, so they end with this process, however it ends.
final class CacheMounts {
    /// A grant's directory that is mounted, or is being mounted.
    private struct Placed {
        var wanted: WantedGrant
        var placing: GrantPlacing
        var isReadOnly: Bool
        /// The earliest time for the next attempt.
        var notBefore: Int64 = 0
        /// When (`Clock.monotonic`) it was first tried.
        let begun = Clock.monotonic
        /// When it was found to be mounted no longer.
        var goneSince: Int64?
    }

    private var store: GrantStore
    /// That of the store's file when it was opened.
    private var stamp: Int64?
    private var daemons: ChildDaemons { ChildDaemons(store: store) }
    private let view: ViewName
    private let mode: CacheMode
    private let mountpoint: Mountpoint
    /// The values of `mount -o`, as they were typed.
    private let lists: [String]
    private var parts: [CacheMode: PartMount] = [:]
    private var placed: [GrantID: Placed] = [:]
    private let report = PlacedReport()

    /// The interval at which the store is polled, and that while a grant is to be mounted: nanoseconds.
    private static let (interval, shortInterval) = (100_000_000, 10_000_000)
    /// The delay before the next attempt after a failure: nanoseconds.
    private static let (retryDelay, placingDelay): (Int64, Int64) = (3_000_000_000, 50_000_000)
    /// The interval at which everything is looked at, and for how long something is tried at short intervals: nanoseconds.
    private static let second: Int64 = 1_000_000_000

    init(store: GrantStore, view: ViewName, mode: CacheMode, mountpoint: Mountpoint, lists: [String]) {
        (self.store, self.view, self.mode, self.mountpoint, self.lists) = (store, view, mode, mountpoint, lists)
        stamp = try? store.fileStamp()
    }

    /// Whether a mount of the view with this cache mode needs such a process.
    static func areNeeded(for view: ViewName, _ mode: CacheMode, in store: GrantStore) throws(GrantError) -> Bool {
        let main = ShownViews.main(view, mode)
        return geteuid() == 0 ? try store.grants(view: view).contains { !main.opens($0) } : false
    }

    /// Mounts, and returns the exit status when the mount is gone or a signal has come. Calls `ready` once: with nil when every grant that
    /// can be mounted is, or with the error when nothing is.
    func run(ready: (GrantError?) -> Void) -> Int32 {
        let signals = ChildDaemons.blockSignals()
        do throws(GrantError) {
            guard
                try daemons.start(
                    flags: ["--new", "--main"], options: options(removing: ["new"]), name: view.description, at: mountpoint.path)
            else {
                throw GrantError(.mountFailed, "the view “\(view)” cannot be mounted", cause: "what its daemon has said is above")
            }
        } catch {
            ready(error)
            return error.exitStatus
        }
        // Nobody is kept waiting by a grant whose filesystem hangs.
        let patience = Clock.deadline(seconds: 2)
        while Clock.monotonic < patience, bringAbout() == .unfinished { usleep(2_000) }
        ready(nil)
        ServiceManager.ready("view “\(view)” mounted at \(mountpoint.shown)")
        var (version, next): (Int64?, Int64) = (nil, 0)
        var state = State.unfinished
        while ChildDaemons.wait(state == .unfinished ? Self.shortInterval : Self.interval, for: signals) {
            // If the store cannot be read, the daemons refuse everything, and it is tried again.
            if hasReopened() { version = nil }
            let now = try? store.dataVersion()
            if state == .finished, now == version, Clock.monotonic < next { continue }
            (version, next) = (now, Clock.monotonic + Self.second)
            state = bringAbout()
            if state == .over { break }
        }
        ServiceManager.stopping()
        end()
        return 0
    }

    /// Opens the store again when its file was written to, replaced, or could not be read: an open connection trusts what it has read before.
    /// Returns whether it has.
    private func hasReopened() -> Bool {
        let now = try? store.fileStamp()
        if now != nil, now == stamp, (try? store.dataVersion()) != nil { return false }
        stamp = now
        guard let opened = try? GrantStore(directory: store.directory, create: false) else { return false }
        store = opened
        return true
    }

    private enum State {
        case finished
        /// Something is still to be mounted.
        case unfinished
        /// The mount is gone.
        case over
    }

    // MARK: mounting

    /// Takes one step towards what the store says. Waits for no granted filesystem, but for a daemon that it starts, which waits a second.
    private func bringAbout() -> State {
        guard let records = try? store.mounts(), let grants = try? store.grants(view: view) else { return .finished }
        guard let main = records.last(where: { $0.mountpoint == mountpoint.path && isMain($0) && $0.process.isRunning }) else {
            return .over
        }
        let now = Instant(nanoseconds: Clock.realtime)
        let others = grants.filter { !main.shown.opens($0) }
        var wanted: [GrantID: WantedGrant] = [:]
        for grant in others where grant.state(at: now) == .active {
            guard let cache = grant.cache, let record = start(cache, records) else { continue }
            wanted[grant.id] = WantedGrant(grant: grant, part: record)
        }
        var isUnfinished = false
        for part in parts.values {
            let grants = wanted.values.filter { $0.grant.cache == part.mode }
            if part.look(at: grants, for: main, store.runDirectory) { isUnfinished = true }
        }
        take(awayUnless: wanted)
        for item in wanted.values { place(item, on: main) }
        if say(wanted, in: main) { isUnfinished = true }
        // What takes longer is tried again once a second.
        let recent = Clock.monotonic - Self.second
        if placed.values.contains(where: { $0.placing.directory == nil && $0.begun > recent }) { isUnfinished = true }
        return isUnfinished ? .unfinished : .finished
    }

    private func isMain(_ record: MountRecord) -> Bool { record.shown == .main(view, mode) }

    /// The record of the running mount of a mode, whose daemon is started when there is none. nil when it could not be.
    private func start(_ cache: CacheMode, _ records: [MountRecord]) -> MountRecord? {
        let running = { (records: [MountRecord], part: PartMount) in
            records.last { $0.mountpoint == part.mountpoint && $0.process.isRunning && $0.connection != nil }
        }
        do throws(GrantError) {
            let part = try part(of: cache)
            if let record = running(records, part) { return record }
            if Clock.monotonic < part.notBefore { return nil }
            part.notBefore = Clock.monotonic + Self.retryDelay
            let isStarted = try daemons.start(
                flags: ["--new", "--part", "--temporary", part.temporary.file],
                options: options(removing: ["new"], adding: "cache=\(cache.rawValue)"), name: view.description,
                at: part.mountpoint)
            return isStarted ? running(try store.mounts(), part) : nil
        } catch {
            SystemLog.write(.warning, Terminal.visible("the grants of “\(view)” with cache=\(cache.rawValue) are not shown: \(error)"))
            return nil
        }
    }

    private func part(of mode: CacheMode) throws(GrantError) -> PartMount {
        if let part = parts[mode] { return part }
        let part = try PartMount(mode, in: store)
        parts[mode] = part
        return part
    }

    private func part(of wanted: WantedGrant) -> PartMount? { wanted.grant.cache.flatMap { parts[$0] } }

    private func place(_ wanted: WantedGrant, on main: MountRecord) {
        guard case .directory(let node) = part(of: wanted)?.sight(of: wanted) else { return }
        let (id, now, isReadOnly) = (wanted.grant.id, Clock.monotonic, wanted.grant.access == .readOnly)
        guard var known = placed[id] else {
            placed[id] = Placed(
                wanted: wanted, placing: GrantPlacing(wanted, node, on: main), isReadOnly: isReadOnly, notBefore: now + Self.placingDelay)
            return
        }
        if let directory = known.placing.directory {
            // One that could not be unmounted yet: it is in the way.
            if isOver(known, wanted) { return }
            // While a file is open for writing the kernel refuses it, and the daemon refuses the writing.
            if known.isReadOnly != isReadOnly { try? directory.set(readOnly: isReadOnly) }
            (known.wanted, known.isReadOnly) = (wanted, isReadOnly)
        } else {
            guard let failure = known.placing.failure, now >= known.notBefore else { return }
            // Its name may lead to something else by now.
            if failure == Errno(ESTALE) { part(of: wanted)?.doubt() }
            known.placing = GrantPlacing(wanted, node, on: main)
            (known.wanted, known.isReadOnly, known.notBefore) = (wanted, isReadOnly, now + Self.placingDelay)
        }
        placed[id] = known
    }

    /// Whether something else is to be mounted instead, or nothing. One whose name is refused may stay: what it leads to refuses as well.
    private func isOver(_ item: Placed, _ wanted: WantedGrant?) -> Bool {
        guard let wanted, wanted == item.wanted else { return true }
        return switch part(of: wanted)?.sight(of: wanted) {
        case .directory(let node): item.placing.directory.map { $0.node != node } ?? false
        case .missing: true
        case .refused, nil: false
        }
    }

    /// Detaches what is not wanted any more, and forgets what somebody else has detached: the kernel does when a name was gone meanwhile.
    private func take(awayUnless wanted: [GrantID: WantedGrant]) {
        let (table, now) = (try? MountTable.current(), Clock.monotonic)
        for (id, item) in placed {
            guard let table, let directory = item.placing.directory, !directory.isMounted(in: table) else { continue }
            // Somebody who unmounts all of it begins with what is mounted below.
            let since = item.goneSince ?? now
            placed[id]?.goneSince = since
            if now >= since + Self.retryDelay { placed[id] = nil }
        }
        for (id, item) in placed where isOver(item, wanted[id]) {
            // What is still being mounted is left until that is done.
            guard item.placing.directory != nil || item.placing.failure != nil else { continue }
            do throws(Errno) {
                try item.placing.directory?.detach()
                placed[id] = nil
            } catch {
                SystemLog.write(.warning, Terminal.visible("“\(item.wanted.grant.name)” cannot be unmounted yet: \(error)"))
            }
        }
    }

    /// Returns whether there is more to say soon.
    private func say(_ wanted: [GrantID: WantedGrant], in main: MountRecord) -> Bool {
        let missing = wanted.values.filter { part(of: $0)?.sight(of: $0) == .missing }
        let mounted = wanted.filter { id, item in
            placed[id].map { $0.placing.directory != nil && $0.goneSince == nil && !isOver($0, item) } ?? false
        }
        return report.say(mounted: mounted.values.map(\.grant), missing: missing.map(\.grant), in: main, store)
    }

    private func options(removing words: Set<String>, adding word: String? = nil) -> String {
        let kept = lists.map { MountOptionParser.removing(words, from: $0) } + (word.map { [$0] } ?? [])
        return kept.filter { !$0.isEmpty }.joined(separator: ",")
    }

    // MARK: the end

    /// Ends the daemons, which withdraw everything first: those of modes, then that of the mount.
    private func end() {
        for item in placed.values { try? item.placing.directory?.detach() }
        let records = (try? store.mounts()) ?? []
        let places = Set(parts.values.map(\.mountpoint))
        daemons.end(records.filter { places.contains($0.mountpoint) })
        for part in parts.values { try? part.temporary.clean() }
        daemons.end(records.filter { $0.mountpoint == mountpoint.path && isMain($0) })
        report.remove()
    }
}
