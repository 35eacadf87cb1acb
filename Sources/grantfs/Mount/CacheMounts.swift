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
    /// The mount of the grants of one mode.
    private final class Part {
        let mode: CacheMode
        let temporary: TemporaryMount
        /// The earliest time (`Clock.monotonic`) for the next attempt to start its daemon.
        var notBefore: Int64 = 0

        init(_ mode: CacheMode, _ temporary: TemporaryMount) { (self.mode, self.temporary) = (mode, temporary) }
    }

    /// A grant's directory as it is to be mounted: what makes it another one, and its access.
    private struct Wanted: Equatable {
        let grant: Grant
        /// The mount of its mode.
        let part: MountRecord

        static func == (left: Wanted, right: Wanted) -> Bool {
            left.grant.id == right.grant.id && left.grant.activation == right.grant.activation && left.grant.name == right.grant.name
                && left.part.id == right.part.id
        }
    }

    /// What a thread has mounted. It may hang with the filesystem of the grant, and is left behind then.
    private final class Placing: Sendable {
        let result = Lock<Result<BoundDirectory, Errno>?>(nil)
    }

    private struct Placed {
        var wanted: Wanted
        var placing: Placing
        var isReadOnly: Bool
        /// The earliest time for the next attempt.
        var notBefore: Int64 = 0
        /// When (`Clock.monotonic`) it was first tried.
        let begun = Clock.monotonic
        /// When it was found to be mounted no longer.
        var goneSince: Int64?

        var directory: BoundDirectory? { try? placing.result.withLock { $0 }?.get() }
        var failure: Errno? {
            if case .failure(let error) = placing.result.withLock({ $0 }) { error } else { nil }
        }
    }

    private let store: GrantStore
    private let daemons: ChildDaemons
    private let view: ViewName
    private let mode: CacheMode
    private let mountpoint: Mountpoint
    /// The values of `mount -o`, as they were typed.
    private let lists: [String]
    private var parts: [CacheMode: Part] = [:]
    private var placed: [GrantID: Placed] = [:]
    /// What `PlacedGrants` says.
    private var said: (grants: [Grant], file: PlacedGrants)?

    /// The interval at which the store is polled, and that while a grant is to be mounted: nanoseconds.
    private static let (interval, shortInterval) = (100_000_000, 10_000_000)
    /// The delay before the next attempt after a failure: nanoseconds.
    private static let (retryDelay, placingDelay): (Int64, Int64) = (3_000_000_000, 50_000_000)

    init(store: GrantStore, view: ViewName, mode: CacheMode, mountpoint: Mountpoint, lists: [String]) {
        (self.store, self.view, self.mode, self.mountpoint, self.lists) = (store, view, mode, mountpoint, lists)
        daemons = ChildDaemons(store: store)
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
            let now = try? store.dataVersion()
            if state == .finished, now == version, Clock.monotonic < next { continue }
            (version, next) = (now, Clock.monotonic + 1_000_000_000)
            state = bringAbout()
            if state == .over { break }
        }
        ServiceManager.stopping()
        end()
        return 0
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
        var wanted: [GrantID: Wanted] = [:]
        for grant in others where grant.state(at: now) == .active {
            guard let cache = grant.cache, let record = start(cache, records) else { continue }
            wanted[grant.id] = Wanted(grant: grant, part: record)
        }
        take(awayUnless: wanted)
        for (id, item) in wanted { place(item, id, in: main) }
        say(in: main)
        // One whose directory is missing is tried again once a second.
        let recent = Clock.monotonic - 1_000_000_000
        let isUnfinished = placed.values.contains {
            $0.directory == nil && ($0.failure == nil || ($0.failure == Errno(ESTALE) && $0.begun > recent))
        }
        return isUnfinished ? .unfinished : .finished
    }

    private func isMain(_ record: MountRecord) -> Bool { record.shown == .main(view, mode) }

    /// The record of the running mount of a mode, whose daemon is started when there is none. nil when it could not be.
    private func start(_ cache: CacheMode, _ records: [MountRecord]) -> MountRecord? {
        let running = { (records: [MountRecord], part: Part) in
            records.last { $0.mountpoint == Array(part.temporary.mountpoint.utf8) && $0.process.isRunning && $0.connection != nil }
        }
        do throws(GrantError) {
            let part = try part(of: cache)
            if let record = running(records, part) { return record }
            if Clock.monotonic < part.notBefore { return nil }
            part.notBefore = Clock.monotonic + Self.retryDelay
            let isStarted = try daemons.start(
                flags: ["--new", "--part", "--temporary", part.temporary.file],
                options: options(removing: ["new"], adding: "cache=\(cache.rawValue)"), name: view.description,
                at: Array(part.temporary.mountpoint.utf8))
            return isStarted ? running(try store.mounts(), part) : nil
        } catch {
            SystemLog.write(.warning, Terminal.visible("the grants of “\(view)” with cache=\(cache.rawValue) are not shown: \(error)"))
            return nil
        }
    }

    private func part(of mode: CacheMode) throws(GrantError) -> Part {
        if let part = parts[mode] { return part }
        let part = Part(mode, try TemporaryMount.create(in: store, hasOwnView: false))
        parts[mode] = part
        return part
    }

    private func place(_ wanted: Wanted, _ id: GrantID, in main: MountRecord) {
        let isReadOnly = wanted.grant.access == .readOnly
        if var known = placed[id] {
            guard known.directory != nil else {
                guard known.failure != nil, Clock.monotonic >= known.notBefore else { return }
                known.placing = begin(wanted, isReadOnly, in: main)
                (known.wanted, known.isReadOnly) = (wanted, isReadOnly)
                known.notBefore = Clock.monotonic + Self.placingDelay
                placed[id] = known
                return
            }
            // One that could not be unmounted yet: it is in the way.
            if known.wanted != wanted { return }
            if known.isReadOnly != isReadOnly {
                // While a file is open for writing the kernel refuses it, and the daemon refuses the writing.
                try? known.directory?.set(readOnly: isReadOnly)
                known.isReadOnly = isReadOnly
            }
            known.wanted = wanted
            placed[id] = known
            return
        }
        placed[id] = Placed(
            wanted: wanted, placing: begin(wanted, isReadOnly, in: main), isReadOnly: isReadOnly,
            notBefore: Clock.monotonic + Self.placingDelay)
    }

    /// Mounts a grant's directory, on a thread of its own.
    private func begin(_ wanted: Wanted, _ isReadOnly: Bool, in main: MountRecord) -> Placing {
        let placing = Placing()
        let (devices, name) = ((wanted.part.connection?.device, main.connection?.device), wanted.grant.name.bytes)
        let (source, target) = (wanted.part.mountpoint, mountpoint.path)
        let work: @Sendable () -> Void = {
            var result: Result<BoundDirectory, Errno>
            do throws(Errno) {
                let source = try FileDescriptor.openWithoutLinks(source)
                let target = try FileDescriptor.openWithoutLinks(target)
                // Another mount may have come to one of the places.
                guard try MountIdentity(of: source).device == devices.0, try MountIdentity(of: target).device == devices.1 else {
                    throw Errno(ESTALE)
                }
                // The kernel may still have the name of what was shown here before.
                let place = try FileDescriptor.openAt(target.number, name, OpenFlags.path | O_DIRECTORY | O_NOFOLLOW)
                guard try MountIdentity(of: place).device == devices.1,
                    VirtualDirectories.isVirtual(inode: UInt64(truncatingIfNeeded: try place.status().st.st_ino))
                else { throw Errno(ESTALE) }
                result = .success(try BoundDirectory(name, of: source, on: place, readOnly: isReadOnly))
            } catch {
                result = .failure(error)
            }
            placing.result.withLock { $0 = result }
        }
        do throws(Errno) {
            try WorkerThread.start("grantfs-place", work).detach()
        } catch {
            placing.result.withLock { $0 = .failure(error) }
        }
        return placing
    }

    /// Detaches what is not wanted any more, and forgets what somebody else has detached: the kernel does when a name was gone meanwhile.
    private func take(awayUnless wanted: [GrantID: Wanted]) {
        let (table, now) = (try? MountTable.current(), Clock.monotonic)
        for (id, item) in placed {
            guard let table, let directory = item.directory, !directory.isMounted(in: table) else { continue }
            // Somebody who unmounts all of it begins with what is mounted below.
            let since = item.goneSince ?? now
            placed[id]?.goneSince = since
            if now >= since + Self.retryDelay { placed[id] = nil }
        }
        for (id, item) in placed where wanted[id] != item.wanted {
            // What is still being mounted is left until that is done.
            guard item.directory != nil || item.failure != nil else { continue }
            do throws(Errno) {
                try item.directory?.detach()
                placed[id] = nil
            } catch {
                SystemLog.write(.warning, Terminal.visible("“\(item.wanted.grant.name)” cannot be unmounted yet: \(error)"))
            }
        }
    }

    /// Says what is mounted, when that has changed.
    private func say(in main: MountRecord) {
        let grants = placed.values.filter { $0.directory != nil && $0.goneSince == nil }.map(\.wanted.grant).sorted {
            $0.name.bytes.lexicographicallyPrecedes($1.name.bytes)
        }
        if let said, said.grants.elementsEqual(grants, by: PlacedGrants.isSame) { return }
        let file = PlacedGrants(in: main, of: store)
        do throws(Errno) {
            try file.write(grants)
            said = (grants, file)
        } catch {
            SystemLog.write(.warning, "it cannot be said which grants are mounted: \(error)")
        }
    }

    private func options(removing words: Set<String>, adding word: String? = nil) -> String {
        let kept = lists.map { MountOptionParser.removing(words, from: $0) } + (word.map { [$0] } ?? [])
        return kept.filter { !$0.isEmpty }.joined(separator: ",")
    }

    // MARK: the end

    /// Ends the daemons, which withdraw everything first: those of modes, then that of the mount.
    private func end() {
        for item in placed.values { try? item.directory?.detach() }
        let records = (try? store.mounts()) ?? []
        let places = Set(parts.values.map { Array($0.temporary.mountpoint.utf8) })
        daemons.end(records.filter { places.contains($0.mountpoint) })
        for part in parts.values { try? part.temporary.clean() }
        daemons.end(records.filter { $0.mountpoint == mountpoint.path && isMain($0) })
        said?.file.remove()
    }
}
