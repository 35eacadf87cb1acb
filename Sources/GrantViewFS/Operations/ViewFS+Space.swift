import CGrantSystem
import GrantFUSE
import Glibc
import GrantSystem
import GrantViewTree

// statfs(2) of the view's root: the sum over its filesystems, some of which may not respond.
extension ViewFS {
    /// How long to wait for a filesystem that does not respond, in nanoseconds.
    ///
    /// After that its last reply counts.
    private static let patience: Int64 = 100_000_000
    private static let blockSize: UInt = 4096

    /// Replies with the sum of all filesystems under the active grants of a directory.
    ///
    /// Each filesystem is counted once.
    func replyFilesystem(ofVirtual id: NodeID, _ request: consuming Request) {
        var seen: Set<dev_t> = []
        let scopes = names.scopes(below: id.rawValue).filter { seen.insert($0.rootStatus.st.st_dev).inserted }
        for scope in scopes { askForSpace(scope) }
        let deadline = Clock.monotonic + Self.patience
        while scopes.contains(where: { $0.isAsking.load(ordering: .acquiring) }), Clock.monotonic < deadline { usleep(100) }
        var sum = statvfs()
        sum.f_bsize = Self.blockSize
        sum.f_frsize = Self.blockSize
        sum.f_namemax = 255
        for one in scopes.compactMap({ $0.space.withLock { $0 } }) where one.f_frsize > 0 {
            Self.add(blocks: one.f_blocks, of: one.f_frsize, to: &sum.f_blocks)
            Self.add(blocks: one.f_bfree, of: one.f_frsize, to: &sum.f_bfree)
            Self.add(blocks: one.f_bavail, of: one.f_frsize, to: &sum.f_bavail)
            Self.add(one.f_files, to: &sum.f_files)
            Self.add(one.f_ffree, to: &sum.f_ffree)
            Self.add(one.f_favail, to: &sum.f_favail)
        }
        if sum.f_blocks == 0 { sum.f_blocks = 1 }
        request.reply(filesystem: &sum)
    }

    /// Adds a count of blocks of another size, converted to blocks of the view's size.
    private static func add(blocks: UInt, of size: UInt, to sum: inout UInt) {
        let bytes = blocks.multipliedFullWidth(by: size)
        // A count that does not fit is larger than any that can be reported.
        add(bytes.high < blockSize ? blockSize.dividingFullWidth(bytes).quotient : .max, to: &sum)
    }

    /// Adds a count, up to the largest number.
    ///
    /// A server or a crafted filesystem may report any number.
    private static func add(_ count: UInt, to sum: inout UInt) {
        let (total, overflows) = sum.addingReportingOverflow(count)
        sum = overflows ? .max : total
    }

    /// Requests the space of a scope's filesystem, on a thread of its own.
    ///
    /// Does nothing while an earlier call is still running.
    private func askForSpace(_ scope: Scope) {
        guard scope.isAsking.compareExchange(expected: false, desired: true, ordering: .acquiringAndReleasing).exchanged else { return }
        _ = BackgroundTask(mayHang: true) { [self] in
            tree.withRoot(of: scope.nodes) { descriptor in
                var answer = statvfs()
                if descriptor >= 0, clinux_fstatvfs(descriptor, &answer) == 0 { scope.space.withLock { $0 = answer } }
            }
            scope.isAsking.store(false, ordering: .releasing)
        }
    }
}
