import Glibc
import GrantModel
import GrantStore
import GrantSystem
import Synchronization
import GrantViewFS

/// What a mount knows of the fleet: until when its grants are valid, and which scopes are open by them.
final class FleetFence: Sendable {
    private let directory: String
    private let scopes = Lock(Scopes())
    private let until = Atomic<Int64>(0)
    private let isWatched = Atomic<Bool>(false)
    /// For tests: the fleet's grants are taken for valid whatever the agent says, which the test with faults has to find.
    private let isMissing = getenv("GRANTFS_TEST_NO_FENCE") != nil

    private struct Scopes {
        var open: [Scope] = []
        var shut: [Scope] = []
    }

    init(directory: String) { self.directory = directory }

    /// Whether the fleet's grants may be used now, by what the agent has said last.
    func isOpen() -> Bool {
        if until.load(ordering: .relaxed) > BootClock.now || isMissing { return true }
        until.store(FleetValidity.read(in: directory), ordering: .relaxed)
        return until.load(ordering: .relaxed) > BootClock.now
    }

    /// When that ends, unless the agent speaks again.
    var end: Int64 { until.load(ordering: .relaxed) }

    /// True for whoever is the first: it begins to watch.
    func beginWatching() -> Bool { !isWatched.exchange(true, ordering: .relaxed) }

    /// A scope of a grant of the fleet is open.
    func guardScope(_ scope: Scope) {
        scopes.withLock { scopes in
            if !scopes.open.contains(where: { $0 === scope }), !scopes.shut.contains(where: { $0 === scope }) { scopes.open.append(scope) }
        }
    }

    /// Whether it was shut here, so that its grant needs a fresh one.
    func hasShut(_ scope: Scope) -> Bool { scopes.withLock { $0.shut.contains { $0 === scope } } }

    /// Those that are to be shut, which from now on count as such.
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

    /// Scopes that have ended.
    func forget(_ ended: [Scope]) {
        if ended.isEmpty { return }
        scopes.withLock { scopes in
            scopes.open.removeAll { scope in ended.contains { $0 === scope } }
            scopes.shut.removeAll { scope in ended.contains { $0 === scope } }
        }
    }
}

// The fence: a daemon that hears nothing of the fleet any more withdraws its grants by itself.
extension MountedView {
    /// Whether grants of the fleet may be used. The first question has the answer watched, for as long as this daemon lives.
    ///
    /// Locking: may be called with `state` held.
    func mayUseFleet() -> Bool {
        if fence.beginWatching() { _ = BackgroundTask { [self] in watchFence() } }
        return fence.isOpen()
    }

    /// Neither the store nor `state` is asked for before the gates are shut, and what the kernel has is taken from it at once: a store that makes its readers wait delays nothing.
    private func watchFence() {
        // Half a second is what it takes at most until what the agent says again is seen without being told.
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
                if !open.isEmpty || !isShut { _ = takeAway() }
                if !isShut { SystemLog.write(.warning, "the fleet was not heard of in time: what it granted is shut until it is", fields) }
                isShut = true
                fence.forget(fence.all.filter { files.isClosed($0) && !isHeld($0) })
            }
        }
    }

    private func isHeld(_ scope: Scope) -> Bool { state.withLock { state in state.grants[scope.grant]?.scope === scope } }

    private func reopenAfterFence() {
        SystemLog.write(.notice, "the fleet is heard of again", fields)
        _ = BackgroundTask(mayHang: true) { [self] in reconcile() }
    }
}
