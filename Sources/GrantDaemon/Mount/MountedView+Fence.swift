import Glibc
import GrantModel
import GrantStore
import GrantSystem
import Synchronization
import GrantViewFS

/// Holds until when the fleet's grants are valid, and the scopes of these grants.
final class FleetFence: Sendable {
    private let directory: String
    private let scopes = Lock(Scopes())
    private let until = Atomic<Int64>(0)
    private let isWatched = Atomic<Bool>(false)
    /// The test with faults has to detect a missing fence.
    private let isMissing = InjectedFault.noFence.isPresent

    private struct Scopes {
        var open: [Scope] = []
        var shut: [Scope] = []
    }

    init(directory: String) { self.directory = directory }

    /// Whether the fleet's grants may be used now, by the lease that the agent wrote last.
    func isOpen() -> Bool {
        if until.load(ordering: .relaxed) > BootClock.now || isMissing { return true }
        until.store(FleetLease.read(in: directory), ordering: .relaxed)
        return until.load(ordering: .relaxed) > BootClock.now
    }

    /// When the lease ends unless the agent renews it.
    var end: Int64 { until.load(ordering: .relaxed) }

    /// Returns true to the first caller, which has to start the watch.
    func beginWatching() -> Bool { !isWatched.exchange(true, ordering: .relaxed) }

    /// Adds the open scope of a fleet grant.
    func guardScope(_ scope: Scope) {
        scopes.withLock { scopes in
            if !scopes.open.contains(where: { $0 === scope }), !scopes.shut.contains(where: { $0 === scope }) { scopes.open.append(scope) }
        }
    }

    /// Whether the fence has shut the scope, so that its grant needs a new one.
    func hasShut(_ scope: Scope) -> Bool { scopes.withLock { $0.shut.contains { $0 === scope } } }

    /// Returns the open scopes, for the caller to shut, and counts them as shut.
    func takeOpen() -> [Scope] {
        scopes.withLock { scopes in
            defer {
                scopes.shut += scopes.open
                scopes.open = []
            }
            return scopes.open
        }
    }

    var all: [Scope] { scopes.withLock { $0.open + $0.shut } }

    /// Removes scopes that have ended.
    func forget(_ ended: [Scope]) {
        if ended.isEmpty { return }
        scopes.withLock { scopes in
            scopes.open.removeAll { scope in ended.contains { $0 === scope } }
            scopes.shut.removeAll { scope in ended.contains { $0 === scope } }
        }
    }
}

// The fence: a daemon whose lease from the fleet expires withdraws the fleet's grants by itself.
extension MountedView {
    /// Whether grants of the fleet may be used. The first call starts a watch that lasts as long as the daemon.
    ///
    /// Locking: may be called with `state` held.
    func mayUseFleet() -> Bool {
        if fence.beginWatching() { _ = BackgroundTask { [self] in watchFence() } }
        return fence.isOpen()
    }

    /// Shuts the scopes when the lease expires and reopens them when it is renewed. Shuts the gates and begins to invalidate the kernel's caches
    /// before it reads the store or locks `state`, so that a store that blocks its readers delays nothing.
    private func watchFence() {
        // While shut it polls, so a renewed lease is seen within half a second without a notification.
        let (turn, most) = (Int64(100_000_000), Int64(500_000_000))
        var isShut = false
        while true {
            let now = BootClock.now
            let end = fence.end
            BootClock.sleep(until: end > now ? end : now + (isShut ? most : turn))
            files.pauseGate.run {
                if fence.isOpen() {
                    if isShut { reopenAfterFence() }
                    isShut = false
                    return
                }
                let open = fence.takeOpen()
                for scope in open { files.shut(scope, .all) }
                for scope in open { _ = BackgroundTask { [files] in _ = files.finish(scope, .all, patience: 2_000) } }
                if !open.isEmpty || !isShut { _ = applyWithdrawals() }
                if !isShut { SystemLog.write(.warning, "the fleet was not heard of in time: what it granted is shut until it is", fields) }
                isShut = true
                fence.forget(fence.all.filter { files.isClosed($0) && !isHeld($0) })
            }
        }
    }

    private func isHeld(_ scope: Scope) -> Bool { state.withLock { state in state.grants[scope.grant]?.scope === scope } }

    private func reopenAfterFence() {
        SystemLog.write(.notice, "the fleet can be reached again", fields)
        _ = BackgroundTask(mayHang: true) { [self] in reconcile() }
    }
}
