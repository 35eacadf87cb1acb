import CGrantSystem
import GrantFUSE
import Glibc
import GrantSystem
import GrantViewTree

/// Invalidates the kernel's caches for changes made on the host.
///
/// Belongs to one thread, which serves no requests and holds no lock while it notifies.
/// Notifications that may block on a program are sent by other threads (`BlockingNotifications`).
final class HostChangeRelay {
    private let view: ViewFS
    private let watch: ChangeWatch
    private let places: WatchedDirectories
    private let process = getpid()
    /// The scopes watched by these means, and the version of the root's table then.
    private var scopes: [ScopeNodes] = []
    private var version: UInt64 = 0
    private var busy = BusyDirectories()
    private let blocking: BlockingNotifications
    private var repeated = RepeatedChanges()
    /// The maximum of nodes since the last sweep, and how many directories that left.
    private var (mostLive, placesLeft) = (0, fewPlaces)
    private static let fewPlaces = 1024

    init(view: ViewFS, watch: ChangeWatch, places: WatchedDirectories) {
        self.view = view
        self.watch = watch
        self.places = places
        blocking = BlockingNotifications(view)
    }

    /// Whether the kernel keeps names, sizes and times until they are invalidated.
    private var keeps: Bool { view.policy.writeBack }

    /// Updates the list of scopes, before each batch of changes.
    func begin() {
        let now = view.names.version
        if now == version { return }
        version = now
        let means = watch.means == .data ? .names : watch.means
        scopes = view.names.open.map(\.scope.nodes).filter { $0.watchMeans.load(ordering: .relaxed) == means.rawValue }
    }

    /// Whether changes in a scope are relayed.
    ///
    /// While claims are held there, parked requests hold kernel locks for which an invalidation
    /// would wait. The end of the claim invalidates instead.
    private func isRelayed(_ scope: ScopeNodes) -> Bool { scope.cacheBypass.load(ordering: .relaxed) & ScopeNodes.claims == 0 }

    func relay(_ change: Change) {
        let kinds = ChangeKinds(rawValue: change.kinds)
        if kinds.contains(.overflow) || kinds.contains(.directory) { view.hostWatch.countMove() }
        if kinds.contains(.overflow) || kinds.contains(.moved) { view.hostWatch.countRename() }
        if kinds.contains(.overflow) {
            if watch.means != .data { for scope in scopes { view.departures.lookAgain(in: scope) } }
            return invalidateAll()
        }
        guard let notifier = view.session?.notifier else { return }
        // The kernel knows changes that came through this mount, in the scope through which they
        // came.
        let isOwn = change.process == process
        let mayConcernOthers = !isOwn || view.haveViewsOverlapped.load(ordering: .relaxed)
        if watch.means == .data { return relayData(change, isOwn: isOwn && !(mayConcernOthers && isKnownInSeveral(change)), notifier) }
        let found = change.has_directory && (mayConcernOthers || kinds.contains(.moved)) ? places.places(under: change.directory) : []
        if kinds.contains(.moved) { lookAfter(change, movedFrom: found, isOwn: isOwn) }
        if isOwn && !(mayConcernOthers && (found.contains { $0.scope != found[0].scope } || isKnownInSeveral(change))) { return }
        if kinds.contains(.ended) {
            places.remove(change.directory)
            watch.remove(directory: change.directory, isGone: true)
            return
        }
        guard let name = change.name else {
            if !view.keepsContents { return }
            for place in found {
                _ = notifier.invalidateAttributes(NodeID(place.node))
                if keeps { scheduleRepeat(scope: place.scope, directory: 0, name: nil, file: place.identity) }
            }
            // A file's link count changed, which is reported without a directory.
            if change.file.length > 0, !change.has_directory { forget(change, data: false, notifier) }
            return
        }
        // Changes in other directories belong to other relays.
        if found.isEmpty { return }
        if kinds.contains(.names), view.keepsContents {
            for place in found {
                forget(name, in: place.node, of: place.scope, notifier)
                if keeps { scheduleRepeat(scope: place.scope, directory: place.node, name: name) }
            }
        }
        if kinds.isDisjoint(with: view.keepsContents ? [.data, .attributes] : .data) { return }
        if change.file.length > 0 {
            forget(change, data: kinds.contains(.data), notifier, named: (name, found))
            return
        }
        for place in found {
            guard let scope = scope(place.scope), let key = documentKey(name, scope) ?? view.tree.key(of: name, in: place, scope)
            else { continue }
            forget(key, in: scope, data: kinds.contains(.data), notifier, named: (name, [place]))
        }
    }

    /// The host's file with a document's name, in a scope that shows a directory.
    private func documentKey(_ name: UnsafePointer<CChar>, _ scope: ScopeNodes) -> NodeKey? {
        guard let document = scope.document, document.isDirectory, document.isNamed(name), let entry = document.entry else { return nil }
        var status = FileStatus()
        let result = entry.name.withUnsafeBufferPointer { clinux_statx(entry.directory.descriptor.number, $0.baseAddress!, &status) }
        return result == 0 ? NodeKey(status) : nil
    }

    private func forget(_ name: UnsafePointer<CChar>, in directory: UInt64, of scope: UInt32, _ notifier: Notifier) {
        blocking.expire(name, in: directory, of: scope)
        // The directory's times as well, and with them its cached listing if the kernel checks
        // them.
        _ = notifier.invalidateAttributes(NodeID(directory))
        if keeps { blocking.invalidateListing(of: directory, in: scope) }
    }

    // MARK: repeated invalidations

    private func scheduleRepeat(scope: UInt32, directory: UInt64, name: UnsafePointer<CChar>?, file: NodeKey? = nil) {
        let name = name.map { Array(UnsafeBufferPointer(start: $0, count: strlen($0) + 1)) } ?? []
        repeated.add(RepeatedChanges.Item(scope: scope, directory: directory, name: name, file: file), now: Clock.monotonic)
    }

    private func relayAgain(_ notifier: Notifier) {
        let due = repeated.takeDue(now: Clock.monotonic)
        if due.all { invalidateEverything() }
        for item in due.items {
            guard let scope = scope(item.scope) else { continue }
            item.name.withUnsafeBufferPointer { name in
                guard let file = item.file else {
                    if let name = name.baseAddress { forget(name, in: item.directory, of: item.scope, notifier) }
                    return
                }
                forget(file, in: scope, notifier, named: name.baseAddress.map { ($0, [item.directory]) })
            }
        }
    }

    // MARK: each write, reported by handle alone

    private func relayData(_ change: Change, isOwn: Bool, _ notifier: Notifier) {
        if !isOwn { forget(change, data: true, notifier) }
        // A constant writer is reported every few milliseconds and does not pay for each report.
        guard change.has_directory, busy.isBusy(change, isOwn: isOwn, now: Clock.monotonic), let scope = scope(of: change) else { return }
        _ = view.tree.withFile(change.directory_handle, in: scope) { watch.pause(directory: $0) }
    }

    /// The longest wait for changes before `relayDue`.
    var millisecondsUntilDue: Int32 {
        let now = Clock.monotonic
        return min(busy.millisecondsUntilDue(now: now), blocking.due ?? .max, repeated.millisecondsUntilDue(now: now))
    }

    /// Resumes reports in paused directories, and relays the changes of files written before.
    func relayDue() {
        if keeps, let notifier = view.session?.notifier {
            blocking.forgetChanged(now: Clock.monotonic) { view.tree.nodes.find($0) != nil }
            relayAgain(notifier)
        }
        blocking.send()
        blocking.poll()
        if keeps,
            blocking.takeDropped() || watch.means != .data && view.hostWatch.mayHaveMissed.exchange(false, ordering: .acquiring) == true
        {
            invalidateAll()
        }
        guard let notifier = view.session?.notifier else { return }
        while let due = busy.takeDue(now: Clock.monotonic) {
            guard let directory = due.directory, let scope = scope(of: directory) else { continue }
            // In this order: a write either is reported again or came before the invalidation.
            _ = view.tree.withFile(directory.directory_handle, in: scope) { watch.add(directory: $0) }
            for file in due.files { forget(file, data: true, notifier) }
        }
    }

    /// The list is sorted by number.
    private func scope(_ number: UInt32) -> ScopeNodes? {
        var (low, high) = (0, scopes.count)
        while low < high {
            let middle = (low + high) / 2
            if scopes[middle].scope < number { low = middle + 1 } else { high = middle }
        }
        return low < scopes.count && scopes[low].scope == number && isRelayed(scopes[low]) ? scopes[low] : nil
    }

    private func scope(of change: Change) -> ScopeNodes? {
        scopes.first { $0.filesystem.load(ordering: .relaxed) == change.filesystem && isRelayed($0) }
    }

    /// Whether the kernel knows the changed file in more than one scope.
    ///
    /// A file that only one scope knows was changed through that scope.
    private func isKnownInSeveral(_ change: Change) -> Bool {
        if change.file.length == 0 { return false }
        var key: NodeKey?
        var count = 0
        for scope in scopes where scope.filesystem.load(ordering: .relaxed) == change.filesystem {
            if key == nil { key = view.tree.withFile(change.file, in: scope) { NodeKey(descriptor: $0) } ?? nil }
            guard let key else { return false }
            if view.tree.find(key, in: scope) != nil { count += 1 }
            if count > 1 { return true }
        }
        return false
    }

    // MARK: renamed files

    /// Checks whether a renamed file left its grant.
    ///
    /// A rename through this mount cannot do that, unless one grant lies in another.
    private func lookAfter(_ change: Change, movedFrom found: [WatchedDirectories.Place], isOwn: Bool) {
        if found.isEmpty { return }
        if change.name == nil {
            for place in found { view.departures.check(at: place.node, in: place.scope) }
            return
        }
        guard change.file.length > 0 else { return }
        var key: NodeKey?
        for scope in scopes where scope.filesystem.load(ordering: .relaxed) == change.filesystem {
            let mayOverlap = scope.cacheBypass.load(ordering: .relaxed) & ScopeNodes.overlap != 0
            if isOwn, !mayOverlap, !view.haveViewsOverlapped.load(ordering: .relaxed) { continue }
            if key == nil { key = view.tree.withFile(change.file, in: scope) { NodeKey(descriptor: $0) } ?? nil }
            guard let key else { return }
            guard let node = view.tree.find(key, in: scope) else { continue }
            if view.mayChangeRules(below: node, in: scope) {
                scope.ruled.countRename()
                view.departures.lookAgain(in: scope)
            }
            view.departures.check(at: node, in: scope.scope)
        }
    }

    // MARK: invalidation

    /// Invalidates a file, given by handle, in every scope that leads to it.
    private func forget(_ change: Change, data: Bool, _ notifier: Notifier, named: ToldName? = nil) {
        var key: NodeKey?
        for scope in scopes where scope.filesystem.load(ordering: .relaxed) == change.filesystem && isRelayed(scope) {
            if key == nil { key = view.tree.withFile(change.file, in: scope) { NodeKey(descriptor: $0) } ?? nil }
            guard let key else { return }
            forget(key, in: scope, data: data, notifier, named: named)
        }
    }

    /// A file's name, and its directories.
    private typealias ToldName = (name: UnsafePointer<CChar>, places: [WatchedDirectories.Place])

    private func forget(_ key: NodeKey, in scope: ScopeNodes, data: Bool, _ notifier: Notifier, named: ToldName? = nil) {
        if keeps {
            let places = named?.places.filter { $0.scope == scope.scope }.map(\.node) ?? []
            forget(key, in: scope, notifier, named: named.map { ($0.name, places) })
            // Also for a file that the kernel does not know: a lookup may be running.
            if places.isEmpty { scheduleRepeat(scope: scope.scope, directory: 0, name: nil, file: key) }
            for place in places { scheduleRepeat(scope: scope.scope, directory: place, name: named?.name, file: key) }
            return
        }
        guard let node = view.tree.find(key, in: scope) else { return }
        // Attributes suffice for an unopened file: the kernel compares size and time before it uses
        // its data.
        if data, view.tree.isOpen(node, key, in: scope) {
            if view.isDirectory(node) {
                blocking.invalidateListing(of: node, in: scope.scope)
            } else {
                view.takeData(of: node, notifier)
            }
        } else {
            _ = notifier.invalidateAttributes(NodeID(node))
        }
    }

    /// Does the same for a kernel that trusts its caches until they are invalidated.
    ///
    /// `named`: the file's name and directories.
    private func forget(
        _ key: NodeKey, in scope: ScopeNodes, _ notifier: Notifier, named: (name: UnsafePointer<CChar>, directories: [UInt64])?
    ) {
        guard let node = view.tree.find(key, in: scope) else { return }
        if view.isDirectory(node) {
            _ = notifier.invalidateAttributes(NodeID(node))
            return blocking.invalidateListing(of: node, in: scope.scope)
        }
        // These means do not tell own changes from others. A file written here counts as changed
        // here.
        if watch.means == .directories, view.isWrittenHere(node) { return }
        _ = notifier.invalidateAttributes(NodeID(node))
        blocking.invalidateFile(node, in: scope.scope)
        guard let named else { return }
        for directory in named.directories { blocking.invalidateFile(named: named.name, in: directory, of: scope.scope) }
    }

    /// Invalidates everything after lost events, because any file may have changed.
    ///
    /// Names hold for less than a second, or are expired immediately if the kernel can do that, or
    /// hold for a minute (`CachePolicy`).
    private func invalidateAll() {
        if keeps { repeated.addAll(now: Clock.monotonic) }
        invalidateEverything()
    }

    private func invalidateEverything() {
        guard let notifier = view.session?.notifier else { return }
        if keeps { _ = notifier.expireAllEntries() }
        for scope in scopes where isRelayed(scope) {
            for node in scope.ids {
                if view.isDirectory(node) {
                    _ = notifier.invalidateAttributes(NodeID(node))
                    blocking.invalidateListing(of: node, in: scope.scope)
                } else if !keeps {
                    _ = notifier.invalidateData(NodeID(node))
                } else {
                    blocking.invalidateFile(node, in: scope.scope)
                }
            }
        }
        blocking.send()
    }

    /// Removes watches of forgotten directories, and so frees them for others.
    ///
    /// Runs once the kernel has forgotten half of its nodes. It also runs once twice as many
    /// directories are watched as after the last sweep.
    func sweepIfWorthwhile() {
        let live = view.tree.nodes.count
        mostLive = max(mostLive, live)
        guard places.count > Self.fewPlaces, places.count > 2 * placesLeft || live < mostLive / 2 else { return }
        sweep()
        (mostLive, placesLeft) = (live, max(Self.fewPlaces, places.count))
    }

    private func sweep() {
        let ended = places.sweep { view.tree.nodes.find($0.node) != nil }
        for key in ended { watch.remove(directory: key, isGone: false) }
    }
}
