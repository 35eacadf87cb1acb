import Glibc
import GrantSystem
import Synchronization
import GrantViewTree

/// What watches the granted directories for changes that are made beside the mount, so that the kernel is told at once instead of when its
/// time is over. It only ever makes the kernel forget: whatever it misses shows when the time is over, within the second of `cache=shared`.
final class HostWatch: Sendable {
    private let names: ChangeWatch?
    private let data: ChangeWatch?
    private let directories: ChangeWatch?
    private let byHandle = WatchedDirectories()
    private let byWatch = WatchedDirectories()

    /// Counts the times that directories may have been renamed or removed on a filesystem that is watched.
    private let moves = Atomic<UInt64>(1)
    /// Counts the renames that are told there, of whatever.
    private let renames = Atomic<UInt64>(0)
    /// Changes may have been missed before this watch began.
    let mayHaveMissed = Atomic<Bool>(false)
    /// Whether somebody takes the changes of `names`, and is about it just now.
    private let isServed = Atomic<Bool>(false)
    private let isTaking = Atomic<Bool>(false)

    /// How long changes are gathered, so that many writes to one file are told as one.
    private static let gatheringMicroseconds: UInt32 = 1_000
    private static let bufferSize = 64 << 10

    init() {
        names = try? ChangeWatch(.names)
        data = try? ChangeWatch(.data)
        directories = try? ChangeWatch(.directories)
    }

    /// Watches for a scope from now on, as well as the kernel and the filesystem let us. `directory`: the granted one, O_PATH.
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

    /// Watches in a directory that the kernel is about to be told of. `descriptor`: its own, pinned.
    ///
    /// Locking: that of the watched directories, for a moment.
    func watch(_ id: UInt64, _ node: NodePointer, descriptor: Int32) {
        let means = node.pointee.withOwner { $0.watchMeans.load(ordering: .acquiring) }
        guard means != 0, !node.pointee.isWatched.exchange(true, ordering: .relaxed) else { return }
        let isByHandle = means == ChangeWatch.Means.names.rawValue
        if isByHandle { _ = data?.add(directory: descriptor) }
        guard let key = (isByHandle ? names : directories)?.add(directory: descriptor) else { return }
        let place = WatchedDirectories.Place(node: id, identity: node.pointee.key, scope: node.pointee.scope)
        (isByHandle ? byHandle : byWatch).add(place, under: key)
    }

    /// Starts the threads that tell `view`'s kernel.
    func start(for view: ViewFS) {
        if let names, let data {
            isServed.store(run(names, byHandle, view), ordering: .releasing)
            run(data, byHandle, view)
        }
        if let directories { run(directories, byWatch, view) }
    }

    /// False without the thread: then changes show when the kernel's time is over.
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

    /// A directory was renamed or removed, or that may have been missed.
    func countMove() { moves.wrappingAdd(1, ordering: .releasing) }

    /// Something was renamed, or that may have been missed.
    func countRename() { renames.wrappingAdd(1, ordering: .releasing) }

    /// Another number when something was renamed since where filesystems are watched.
    var renamesSeen: UInt64 { renames.load(ordering: .acquiring) }

    /// A number that is another one when a directory may have been renamed or removed meanwhile on a filesystem whose names are watched; nil when
    /// changes have come that nobody has looked at yet.
    var movesSeen: UInt64? {
        // Looked at in this order: what is not waiting was taken before, with `isTaking` set, and is counted when that is over.
        guard isServed.load(ordering: .acquiring), let names, !names.hasPending, !isTaking.load(ordering: .sequentiallyConsistent) else {
            return nil
        }
        return moves.load(ordering: .acquiring)
    }
}
