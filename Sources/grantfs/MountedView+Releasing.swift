import Control
import Glibc
import GrantModel
import LinuxFS
import ViewFS

// Letting go of a directory that stays granted, so that its filesystem can be unmounted.
extension MountedView {
    /// Closes the scopes of active grants and every descriptor that the mount keeps for them. They stay away until the mount of the
    /// filesystem they were on has gone. Descriptors behind files that processes hold open go when those are closed.
    func release(_ grants: [GrantID], timeoutMilliseconds: Int) -> ControlReply {
        let deadline = Clock.monotonic + Int64(timeoutMilliseconds) * 1_000_000
        guard let table = try? MountTable.current() else { return .failed("its daemon cannot read the mount table") }
        let (scopes, tasks, names, closings) = state.withLock { state in
            var (scopes, tasks, names) = ([Scope](), [() -> Void](), [GrantName]())
            for id in grants {
                // What an earlier release could not let go of yet.
                scopes += state.closed.filter { $0.grant == id }
                guard var live = state.grants[id], live.recorded == .active, live.released == nil else { continue }
                live.released =
                    (live.scope == nil ? nil : live.mount) ?? table.entry(holding: live.grant.bookmark.path).map { MountIdentity($0) }
                if let scope = live.scope {
                    live.scope = nil
                    files.root.set(live.grant.name, nil)
                    names.append(live.grant.name)
                    scopes.append(scope)
                    tasks.append(close(scope, .all, of: id, &state))
                }
                state.grants[id] = live
            }
            return (scopes, tasks, names, state.closings)
        }
        files.forgetRootNames(names)
        for task in tasks { task() }
        let reply = outcomes(of: grants, closings, until: deadline)
        let kept = forget(scopes, names, until: deadline)
        guard case .applied(var outcomes) = reply else { return reply }
        for index in outcomes.indices where kept.contains(outcomes[index].grant) { outcomes[index].confirmed = false }
        return .applied(outcomes)
    }

    /// Waits until the kernel has forgotten what it knew below the names: a descriptor to open it again is kept until then. It does so
    /// as soon as the names are asked for and found to be gone, unless a process holds something. Returns the grants of which it has not forgotten all.
    private func forget(_ scopes: [Scope], _ names: [GrantName], until deadline: Int64) -> Set<GrantID> {
        for name in names { _ = try? FileDescriptor.open(Array(mountpoint.utf8) + [0x2F] + name.bytes, OpenFlags.path | O_NOFOLLOW) }
        let patience = min(deadline, Clock.monotonic + 500_000_000)
        while true {
            reapClosed()
            let closed = state.withLock { $0.closed }
            let left = scopes.filter { scope in closed.contains { $0 === scope } }
            if left.isEmpty || Clock.monotonic >= patience { return Set(left.map(\.grant)) }
            usleep(2_000)
        }
    }

    /// Grants whose filesystem was unmounted since they were released may be looked for again. Only the mount table is read: a look at
    /// the filesystem itself could be what makes `umount` fail.
    func endReleases() {
        let isAny = state.withLock { $0.grants.values.contains { $0.released != nil } }
        guard isAny, let table = try? MountTable.current() else { return }
        state.withLock { state in
            for (id, live) in state.grants {
                guard let released = live.released, !released.isMounted(in: table) else { continue }
                state.grants[id]?.released = nil
            }
        }
    }
}
