import Glibc
import GrantSystem
import Synchronization
import GrantViewTree

/// Watches the granted directories for changes on the host.
///
/// So the kernel is notified immediately and not only when its timeouts expire. Notifications only
/// invalidate. A missed change shows at the timeout, within the second of `cache=shared`.
final class HostWatch: Sendable {
    private let names: ChangeWatch?
    private let data: ChangeWatch?
    private let directories: ChangeWatch?
    private let byHandle = WatchedDirectories()
    private let byWatch = WatchedDirectories()

    /// Counts possible renames and removals of directories on watched filesystems.
    private let moves = Atomic<UInt64>(1)
    /// Counts reported renames of files and directories there.
    private let renames = Atomic<UInt64>(0)
    /// Changes may have been missed before this watch began.
    let mayHaveMissed = Atomic<Bool>(false)
    /// Whether a thread reads the changes of `names`, and whether it is doing so now.
    private let isServed = Atomic<Bool>(false)
    private let isTaking = Atomic<Bool>(false)

    /// How long changes are gathered, so that many writes to a file become one.
    private static let gatheringMicroseconds: UInt32 = 1_000
    private static let bufferSize = 64 << 10

    init() {
        names = try? ChangeWatch(.names)
        data = try? ChangeWatch(.data)
        directories = try? ChangeWatch(.directories)
    }

    /// Starts watching for a scope, as far as kernel and filesystem allow.
    ///
    /// `directory`: the granted one, O_PATH.
    func begin(_ scope: ScopeNodes, directory: borrowing FileDescriptor) {
        if scope.opensByHandle, let names, data != nil, let id = try? directory.filesystemID(),
            (try? names.addFilesystem(of: directory.number)) != nil
        {
            scope.filesystem.store(id, ordering: .relaxed)
            scope.watchMeans.store(ChangeWatch.Means.names.rawValue, ordering: .releasing)
        } else if directories != nil {
            scope.watchMeans.store(ChangeWatch.Means.directories.rawValue, ordering: .releasing)
        }
    }

    /// Watches a directory before the kernel gets to know it. `descriptor`: its own, pinned.
    ///
    /// Locking: takes the lock of the watched directories for a moment.
    func watch(_ id: UInt64, _ node: NodePointer, descriptor: Int32) {
        let means = node.pointee.withOwner { $0.watchMeans.load(ordering: .acquiring) }
        guard means != 0, !node.pointee.isWatched.load(ordering: .acquiring) else { return }
        InjectedFault.stop(at: "watching")
        add(descriptor, as: id, node)
        // Set afterwards: another request that finds the directory relies on it.
        node.pointee.isWatched.store(true, ordering: .releasing)
    }

    /// Watches a directory whose changes are those of the node `id`.
    ///
    /// Locking: takes the lock of the watched directories for a moment.
    func add(_ descriptor: Int32, as id: UInt64, _ node: NodePointer) {
        let means = node.pointee.withOwner { $0.watchMeans.load(ordering: .acquiring) }
        if means == 0 { return }
        let isByHandle = means == ChangeWatch.Means.names.rawValue
        if isByHandle { _ = data?.add(directory: descriptor) }
        guard let key = (isByHandle ? names : directories)?.add(directory: descriptor) else { return }
        let place = WatchedDirectories.Place(node: id, identity: node.pointee.key, scope: node.pointee.scope)
        (isByHandle ? byHandle : byWatch).add(place, under: key)
    }

    /// Ends the watches of directories whose changes belong to the node `id` alone.
    func end(of id: UInt64, _ node: NodePointer) {
        node.pointee.isWatched.store(false, ordering: .relaxed)
        for key in byHandle.sweep(isLive: { $0.node != id }) { names?.remove(directory: key, isGone: false) }
        for key in byWatch.sweep(isLive: { $0.node != id }) { directories?.remove(directory: key, isGone: false) }
    }

    /// Starts the threads that invalidate `view`'s caches.
    func start(for view: ViewFS) {
        if let names, let data {
            isServed.store(run(names, byHandle, view), ordering: .releasing)
            run(data, byHandle, view)
        }
        if let directories { run(directories, byWatch, view) }
    }

    /// Starts a thread for changes. Returns false if it cannot be made.
    ///
    /// Changes then show when the kernel's timeouts expire.
    @discardableResult
    private func run(_ watch: ChangeWatch, _ places: WatchedDirectories, _ view: ViewFS) -> Bool {
        let thread = try? WorkerThread.start("grantfs-watch") { [self] in
            let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: Self.bufferSize, alignment: 8)
            let relay = HostChangeRelay(view: view, watch: watch, places: places)
            while view.session?.hasEnded != true {
                watch.wait(milliseconds: relay.millisecondsUntilDue)
                usleep(Self.gatheringMicroseconds)
                view.pauseGate.begin()
                relay.begin()
                if watch.means == .names { isTaking.store(true, ordering: .sequentiallyConsistent) }
                watch.drain(into: buffer) { relay.relay($0) }
                if watch.means == .names { isTaking.store(false, ordering: .releasing) }
                relay.relayDue()
                if watch.means != .data { relay.sweepIfWorthwhile() }
                view.pauseGate.end()
            }
            buffer.deallocate()
        }
        thread?.detach()
        return thread != nil
    }

    // MARK: directories that move

    /// Counts that a directory may have been renamed or removed.
    func countMove() { moves.wrappingAdd(1, ordering: .releasing) }

    /// Counts that a file or directory may have been renamed.
    func countRename() { renames.wrappingAdd(1, ordering: .releasing) }

    /// Changes with every rename on a watched filesystem.
    var renamesSeen: UInt64 { renames.load(ordering: .acquiring) }

    /// Changes when a directory may have been renamed or removed on a watched filesystem.
    ///
    /// Its names must be watched. nil while unread changes are queued.
    var movesSeen: UInt64? {
        // In this order: changes that are not queued were read with `isTaking` set, and are counted
        // when that is cleared.
        guard isServed.load(ordering: .acquiring), let names, !names.hasPending, !isTaking.load(ordering: .sequentiallyConsistent) else {
            return nil
        }
        return moves.load(ordering: .acquiring)
    }
}
