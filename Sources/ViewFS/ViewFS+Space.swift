import CLinux
import FUSEKit
import Glibc
import LinuxFS
import ViewTree

// statfs(2) of the view's root: the sum over filesystems of which some may not answer.
extension ViewFS {
    /// How long one that does not answer is waited for; then it counts as it was when it last did.
    private static let patience: Int64 = 100_000_000

    /// All filesystems under the active grants together, each counted once.
    func replyRootFilesystem(_ request: consuming Request) {
        var seen: Set<UInt64> = []
        let scopes = root.open.map(\.scope).filter { seen.insert(UInt64($0.rootStatus.st.st_dev)).inserted }
        for scope in scopes { askForSpace(scope) }
        let deadline = Clock.monotonic + Self.patience
        while scopes.contains(where: { $0.isAsking.load(ordering: .acquiring) }), Clock.monotonic < deadline { usleep(100) }
        var sum = statvfs()
        sum.f_bsize = 4096
        sum.f_frsize = 4096
        sum.f_namemax = 255
        for one in scopes.compactMap({ $0.space.withLock { $0 } }) where one.f_frsize > 0 {
            let unit = UInt(one.f_frsize)
            sum.f_blocks += one.f_blocks * unit / 4096
            sum.f_bfree += one.f_bfree * unit / 4096
            sum.f_bavail += one.f_bavail * unit / 4096
            sum.f_files += one.f_files
            sum.f_ffree += one.f_ffree
            sum.f_favail += one.f_favail
        }
        if sum.f_blocks == 0 { sum.f_blocks = 1 }
        request.reply(filesystem: &sum)
    }

    /// Asks a scope's filesystem on a thread of its own, unless that is still under way from before.
    private func askForSpace(_ scope: Scope) {
        guard scope.isAsking.compareExchange(expected: false, desired: true, ordering: .acquiringAndReleasing).exchanged else { return }
        _ = BackgroundTask { [self] in
            tree.withRoot(of: scope.nodes) { descriptor in
                var answer = statvfs()
                if descriptor >= 0, clinux_fstatvfs(descriptor, &answer) == 0 { scope.space.withLock { $0 = answer } }
            }
            scope.isAsking.store(false, ordering: .releasing)
        }
    }
}
