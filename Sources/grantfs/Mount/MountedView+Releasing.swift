import GrantControl
import Glibc
import GrantModel
import GrantSystem
import GrantViewFS

// Letting go of a directory that stays granted, so that its filesystem can be unmounted.
extension MountedView {
    /// The mount that a released directory was in.
    struct ReleasedMount {
        let entry: MountEntry
        /// The number that no other mount ever has. Without one, a mount that came in the place of the old one between two looks, with
        /// the same id and device, is taken for it.
        let number: UInt64?

        /// Asks the kernel's list of mounts alone: a look at the filesystem itself could be what makes `umount` fail.
        func isThere(_ table: MountTable) -> Bool {
            if let number, let isThere = MountNumber.isThere(number) { return isThere }
            let now = table.entry(id: entry.id)
            return now?.mountpoint == entry.mountpoint && now?.major == entry.major && now?.minor == entry.minor
        }
    }

    /// Closes the scopes of active grants and every descriptor that the mount keeps for them, whoever holds something of them. They stay
    /// away until the mount of the filesystem they were on has gone. Not confirmed is what hangs in that filesystem.
    func release(_ grants: [GrantID], timeoutMilliseconds: Int) -> ControlReply {
        let deadline = Clock.monotonic + Int64(truncatingIfNeeded: timeoutMilliseconds) &* 1_000_000
        guard let table = try? MountTable.current() else { return .failed("its daemon cannot read the mount table") }
        let (scopes, tasks, closings) = state.withLock { state in
            var (scopes, tasks) = ([Scope](), [() -> Void]())
            for id in grants {
                // What an earlier release or withdrawal could not let go of yet.
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
            return (scopes, tasks, self.closings(of: grants, state))
        }
        for task in tasks { task() }
        files.invalidateVirtualDirectories()
        defer { awaitNames(of: grants, until: deadline) }
        let reply = outcomes(of: grants, closings, until: deadline)
        removeWorkplaces(waits: true)
        // What has not left by then hangs.
        let kept = letGo(of: scopes, until: min(deadline, Clock.monotonic + 2_000_000_000))
        guard case .applied(var outcomes) = reply else { return reply }
        for index in outcomes.indices where kept.contains(outcomes[index].grant) { outcomes[index].confirmed = false }
        return .applied(outcomes)
    }

    /// Waits until the descriptors of closed scopes are gone. Returns the grants of which some are left.
    private func letGo(of scopes: [Scope], until deadline: Int64) -> Set<GrantID> {
        var turn: UInt32 = 50
        while true {
            let left = scopes.filter { !files.hasReleasedDescriptors(of: $0) }
            if left.isEmpty || Clock.monotonic >= deadline { return Set(left.map(\.grant)) }
            for scope in left { files.beginRelease(of: scope) }
            usleep(turn)
            turn = min(turn * 2, 2_000)
        }
    }

    /// Grants whose filesystem was unmounted since they were released may be looked for again.
    func endReleases() {
        let isAny = state.withLock { $0.summed().hasReleased }
        guard isAny, let table = try? MountTable.current() else { return }
        state.withLock { state in
            for (id, live) in state.grants where live.released?.isThere(table) == false { state.grants[id]?.released = nil }
        }
    }
}
