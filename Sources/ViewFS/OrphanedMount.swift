import FUSEKit
import Glibc
import LinuxFS
import ViewTree

/// A mount whose daemon has died, in the hands of the process that was kept for that.
public enum OrphanedMount {
    /// A file of a gigabyte takes 0.2 s; a listing that a program holds, for ever.
    private static let patience: Int64 = 50_000_000
    /// So many threads may stand for what programs hold.
    private static let limit = 256

    /// Refuses every request (ENOTCONN) and has the kernel forget all data of the mount: cached pages, mappings, listings. Returns when nothing is left; what
    /// a program keeps locked costs the rest nothing. `published`: see `PublishedIDs`.
    public static func forgetAll(_ connection: consuming OrphanedConnection, published: borrowing FileDescriptor) throws(Errno) {
        let nodes = try PublishedIDs.all(in: published)
        let shared = Shared(connection)
        // Before anything is forgotten: what is dirty is written first, and that has to be refused by somebody.
        try WorkerThread.start("grantfs-refuse") { shared.connection.refuseAll() }.detach()
        let calls = LeavableCalls<UInt64>(limit: limit) { shared.connection.forgetData($0) }
        // Twice: a page whose write was refused stays the first time (mm/truncate.c, invalidate_inode_pages2_range).
        calls.add(nodes + nodes)
        var turn: UInt32 = 100
        while !calls.isDone {
            usleep(turn)
            turn = min(turn * 2, 50_000)
            calls.leave(after: patience)
        }
    }

    private final class Shared: Sendable {
        let connection: OrphanedConnection
        init(_ connection: consuming OrphanedConnection) { self.connection = connection }
    }
}
