import GrantFUSE
import Glibc
import GrantSystem
import GrantViewTree

/// A mount whose daemon may die, in the keeper process that then cleans up after it.
public final class OrphanedMount: Sendable {
    private let connection: OrphanedConnection
    private let published: FileDescriptor
    private let hasElements: Bool
    /// Open for as long as this process lives.
    private let control: Int32?
    /// Whether the connection is aborted before anything is invalidated.
    private let cutsFirst: Bool
    private let death = Semaphore()

    /// How long an invalidation may take before others continue beside it: nanoseconds. A file of a gigabyte takes 0.2 s; a listing
    /// that a program holds, for ever.
    private static let patience: Int64 = 50_000_000
    /// The limit of threads that block on what programs hold.
    private static let limit = 1024

    /// `published`: the nodes, see `SharedChunks`. `control`: see `FUSEConnection.control`, the number of a descriptor that stays
    /// open; nil where there is none. Then threads are made at once, because later there may be none to be had. They are as well
    /// where the kernel takes no notifications for an aborted connection (7.2 does not, 6.18 does): there the connection is aborted
    /// at the end.
    public init(_ connection: consuming OrphanedConnection, published: consuming FileDescriptor, hasElements: Bool, control: Int32?) {
        self.hasElements = hasElements
        self.connection = connection
        self.published = published
        self.control = control
        cutsFirst = control != nil && Self.takesNotificationsOnceCut
        if !cutsFirst {
            // Without this thread requests wait until everything is invalidated, and dirty pages are not; the keeper unmounts all
            // the same.
            try? WorkerThread.start("grantfs-refuse") { [self] in
                death.wait()
                self.connection.refuseAll()
            }.detach()
            ReserveThreads.prepare()
        }
    }

    /// Refuses every request (ENOTCONN), and invalidates all data of the mount: cached pages, mappings, listings. What a program
    /// keeps locked does not hold up the rest. Calls `leaving` when only listings that programs hold are left, and returns when
    /// nothing is.
    public func forgetAll(leaving: () -> Void) {
        // Before any invalidation: dirty pages are written first, and that has to be refused by somebody.
        if cutsFirst { cut() } else { death.post() }
        let (files, directories) = nodes()
        let isDirectory = Set(directories)
        let calls = AbandonableCalls<UInt64>(limit: Self.limit, mayBlock: { isDirectory.contains($0) }) { [self] in
            connection.invalidateData($0)
        }
        // Files twice: a page whose write was refused survives the first time (mm/truncate.c, invalidate_inode_pages2_range).
        // Directories last: a program can keep a listing's page locked.
        calls.add(files + files + directories)
        var (backoff, hasEscaped): (UInt32, Bool) = (100, false)
        while !calls.isDone {
            usleep(backoff)
            calls.abandon(after: Self.patience)
            backoff = min(backoff * 2, calls.isUnderWay ? 2_000 : 500_000)
            if !hasEscaped, !calls.isUnderWay, calls.pending == 0 {
                hasEscaped = true
                cut()
                leaving()
            }
        }
        if !hasEscaped { cut() }
    }

    private func cut() {
        if let control { try? FUSEConnection.abort(by: control) }
    }

    private static let takesNotificationsOnceCut = KernelRelease.current.map { $0 < (6, 19) } ?? false

    private func nodes() -> (plain: [UInt64], marked: [UInt64]) {
        while true {
            if let nodes = try? SharedChunks.ids(in: published, withElements: hasElements, of: Node.self) { return nodes }
            // Out of memory; nothing else could be done.
            usleep(100_000)
        }
    }
}
