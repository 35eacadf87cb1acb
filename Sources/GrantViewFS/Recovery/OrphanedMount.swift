import GrantFUSE
import Glibc
import GrantSystem
import GrantViewTree

/// A mount whose daemon may die, in the keeper process that cleans up after it.
public final class OrphanedMount: Sendable {
    private let connection: OrphanedConnection
    private let published: FileDescriptor
    private let hasElements: Bool
    /// Open for as long as this process lives.
    private let control: Int32?
    /// Whether the connection is aborted before the first invalidation.
    private let cutsFirst: Bool
    private let death = Semaphore()

    /// Nanoseconds after which others continue beside a slow invalidation.
    ///
    /// A file of a gigabyte takes 0.2 s. A listing that a program holds can take forever.
    private static let patience: Int64 = 50_000_000
    /// The limit of threads that block on locks of programs.
    private static let limit = 1024

    /// Prepares for the death of the daemon.
    ///
    /// Without `control` threads are made immediately, because later it may be impossible to make
    /// any. The same holds if the kernel takes no notifications for an aborted connection (7.2 does
    /// not, 6.18 does). The connection is then aborted at the end.
    ///
    /// - Parameters:
    ///   - published: The nodes, see `SharedChunks`.
    ///   - control: The number of a descriptor that stays open, see `FUSEConnection.control`. nil
    ///     if there is none.
    public init(_ connection: consuming OrphanedConnection, published: consuming FileDescriptor, hasElements: Bool, control: Int32?) {
        self.hasElements = hasElements
        self.connection = connection
        self.published = published
        self.control = control
        cutsFirst = control != nil && Self.takesNotificationsOnceCut
        if !cutsFirst {
            // Without this thread requests wait until everything is invalidated, except dirty
            // pages. The keeper unmounts in any case.
            try? WorkerThread.start("grantfs-refuse") { [self] in
                death.wait()
                self.connection.refuseAll()
            }.detach()
            ReserveThreads.prepare()
        }
    }

    /// Refuses every request (ENOTCONN), and invalidates all cached data of the mount.
    ///
    /// This covers cached pages, mappings and listings. Data that a program keeps locked does not
    /// delay the rest. Returns when nothing is left.
    ///
    /// - Parameter leaving: Called when only listings that programs hold are left.
    public func forgetAll(leaving: () -> Void) {
        // Before any invalidation: the kernel writes dirty pages first, and those writes must be
        // refused.
        if cutsFirst { cut() } else { death.post() }
        let (files, directories) = nodes()
        let isDirectory = Set(directories)
        let calls = AbandonableCalls<UInt64>(limit: Self.limit, mayBlock: { isDirectory.contains($0) }) { [self] in
            connection.invalidateData($0)
        }
        // Files twice: a page survives one pass if its write was refused (mm/truncate.c,
        // invalidate_inode_pages2_range). Directories last: programs can lock listings.
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
            // Out of memory: all other steps need the nodes.
            usleep(100_000)
        }
    }
}
