import GrantControl
import Glibc
import GrantModel
import GrantSystem
import GrantViewFS

// Releases directories that stay granted, so that their filesystems can be unmounted.
extension MountedView {
    /// The mount that a released directory was in.
    struct ReleasedMount {
        let entry: MountEntry
        /// The unique number of the mount, where the kernel has one. Without it, a new mount with the same id and device that replaced the old
        /// one between two checks is not noticed.
        let number: UInt64?

        /// Whether it is still mounted. Reads only the mount table: an access to the filesystem could make `umount` fail.
        func isThere(_ table: MountTable) -> Bool {
            if let number, let isThere = MountNumber.isThere(number) { return isThere }
            let now = table.entry(id: entry.id)
            return now?.mountpoint == entry.mountpoint && now?.major == entry.major && now?.minor == entry.minor
        }
    }

    /// Closes the scopes of active grants and all their descriptors, even those that programs use. The grants are not opened again until their
    /// filesystem is unmounted. Operations that hang in that filesystem leave a grant unconfirmed.
    func release(_ grants: [GrantID], timeoutMilliseconds: Int) -> ControlReply {
        let deadline = Clock.monotonic + Int64(truncatingIfNeeded: timeoutMilliseconds) &* 1_000_000
        guard let table = try? MountTable.current() else { return .failed("its daemon cannot read the mount table") }
        let (scopes, tasks, pendingWithdrawals) = state.withLock { state in
            var (scopes, tasks) = ([Scope](), [() -> Void]())
            for id in grants {
                // Scopes that an earlier release or withdrawal could not close yet.
                scopes += state.closed.filter { $0.grant == id }
                guard var live = state.grants[id], live.recorded == .active, live.released == nil else { continue }
                let path = live.scope.flatMap { files.path(of: $0) } ?? live.grant.bookmark.path
                live.released = table.entry(holding: path).map { ReleasedMount(entry: $0, number: live.scope?.mount) }
                if let scope = live.scope {
                    live.scope = nil
                    files.names.set(live.path, nil)
                    scopes.append(scope)
                    tasks.append(close(scope, .all, of: id, &state))
                }
                state.grants[id] = live
            }
            return (scopes, tasks, self.pendingWithdrawals(of: grants, state))
        }
        for task in tasks { task() }
        files.invalidateVirtualDirectories()
        defer { awaitNames(of: grants, until: deadline) }
        let reply = outcomes(of: grants, pendingWithdrawals, until: deadline)
        endWorkplaces(within: 1_000_000_000)
        // An operation that has not finished by then hangs.
        let kept = releaseDescriptors(of: scopes, until: min(deadline, Clock.monotonic + 2_000_000_000))
        guard case .applied(var outcomes) = reply else { return reply }
        for index in outcomes.indices where kept.contains(outcomes[index].grant) { outcomes[index].confirmed = false }
        return .applied(outcomes)
    }

    /// Waits until the descriptors of closed scopes are closed. Returns the grants that still have some.
    private func releaseDescriptors(of scopes: [Scope], until deadline: Int64) -> Set<GrantID> {
        var turn: UInt32 = 50
        while true {
            let left = scopes.filter { !files.hasReleasedDescriptors(of: $0) }
            if left.isEmpty || Clock.monotonic >= deadline { return Set(left.map(\.grant)) }
            for scope in left { files.beginRelease(of: scope) }
            usleep(turn)
            turn = min(turn * 2, 2_000)
        }
    }

    /// Allows released grants to be opened again if their filesystem was unmounted.
    func endReleases() {
        let isAny = state.withLock { $0.summed().hasReleased }
        guard isAny, let table = try? MountTable.current() else { return }
        state.withLock { state in
            for (id, live) in state.grants where live.released?.isThere(table) == false { state.grants[id]?.released = nil }
        }
    }
}
