import Glibc
import LinuxFS
import Synchronization
import ViewTree

/// What watches the granted directories for changes that are made beside the mount, so that the kernel is told at once instead of when its
/// time is over. It only ever makes the kernel forget: whatever it misses shows when the time is over, within the second of `cache=shared`.
final class HostWatch: Sendable {
    private let names: ChangeWatch?
    private let data: ChangeWatch?
    private let directories: ChangeWatch?
    private let byHandle = WatchedDirectories()
    private let byWatch = WatchedDirectories()

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
    func note(_ id: UInt64, _ node: NodePointer, descriptor: Int32) {
        let means = node.pointee.withOwner { $0.watchMeans.load(ordering: .acquiring) }
        guard means != 0, !node.pointee.isWatched.exchange(true, ordering: .relaxed) else { return }
        let isByHandle = means == ChangeWatch.Means.names.rawValue
        if isByHandle { _ = data?.add(directory: descriptor) }
        guard let key = (isByHandle ? names : directories)?.add(directory: descriptor) else { return }
        let place = WatchedDirectories.Place(node: id, identity: node.pointee.key, scope: node.pointee.scope)
        (isByHandle ? byHandle : byWatch).note(place, under: key)
    }

    /// Starts the threads that tell `view`'s kernel.
    func start(for view: ViewFS) {
        if let names, let data {
            run(names, byHandle, view)
            run(data, byHandle, view)
        }
        if let directories { run(directories, byWatch, view) }
    }

    private func run(_ watch: ChangeWatch, _ places: WatchedDirectories, _ view: ViewFS) {
        // Without the thread, changes show when the kernel's time is over.
        _ = try? WorkerThread.start("grantfs-watch") {
            let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: Self.bufferSize, alignment: 8)
            let teller = ChangeTeller(view: view, watch: watch, places: places)
            while view.session?.hasEnded != true {
                watch.wait(milliseconds: teller.millisecondsUntilDue)
                usleep(Self.gatheringMicroseconds)
                teller.begin()
                watch.takeAll(into: buffer) { teller.tell($0) }
                teller.tellDue()
                if watch.means != .data { teller.sweepIfWorthwhile() }
            }
            buffer.deallocate()
        }.detach()
    }
}
