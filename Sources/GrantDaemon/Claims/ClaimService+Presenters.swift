import GrantControl
import GrantCoordinator
import Glibc
import GrantModel
import GrantSystem
import GrantViewFS

// Registration of presenters.
extension ClaimService {
    /// The maximum of presenters on one connection.
    private static let maxPerConnection = 1_024
    /// The default and the maximum time for an answer: nanoseconds.
    private static let defaultAnswerTimeout: Int64 = 5_000_000_000
    private static let maxAnswerTimeout: Int64 = 60_000_000_000

    func present(_ request: PresentRequest, _ session: ControlSession) {
        let (isNew, isCrowded) = state.withLock { state -> (Bool, Bool) in
            if state.lookups >= Self.maxLookups { return (true, true) }
            var own = state.presenting.numbers[session.number] ?? [:]
            if own.count >= Self.maxPerConnection || own[request.number] != nil { return (false, false) }
            own[request.number] = .some(nil)
            state.presenting.numbers[session.number] = own
            state.lookups += 1
            return (true, false)
        }
        // A number that is in use is a protocol error.
        guard isNew else { return session.end() }
        if isCrowded {
            let text = "too many searches are in progress: a filesystem may hang"
            return session.send(.notPresenting(request.number, .failed, text: text))
        }
        _ = BackgroundTask { [self] in
            register(request, session)
            state.withLock { $0.lookups -= 1 }
        }
    }

    private func register(_ request: PresentRequest, _ session: ControlSession) {
        func refuse(_ refusal: ClaimRefusal, _ text: String = "") {
            state.withLock { _ = $0.presenting.numbers[session.number]?.removeValue(forKey: request.number) }
            session.send(.notPresenting(request.number, refusal, text: text))
        }
        let target: ClaimTarget
        do throws(TargetFailure) {
            target = try files.target(request.path)
        } catch {
            guard case .system(let cause) = error else { return refuse(isRevoked(request.path) ? .revoked : .outside) }
            return refuse(.failed, "“\(String(decoding: request.path, as: UTF8.self))”: \(cause)")
        }
        let item = target.item()
        guard let home = home(of: request.path, files.scopes(meeting: [item])[0]) else { return refuse(.outside) }
        let asked = Int64(truncatingIfNeeded: request.patienceMilliseconds) &* 1_000_000
        let patience = asked == 0 ? Self.defaultAnswerTimeout : min(asked, Self.maxAnswerTimeout)
        let (refusal, isFirst) = state.withLock { state -> (ClaimRefusal?, Bool) in
            // It has been closed or withdrawn meanwhile.
            guard state.presenting.numbers[session.number]?[request.number] != nil else { return (nil, false) }
            let reached = home.scopes.subtracting(state.withdrawn)
            if reached.isEmpty { return (.revoked, false) }
            // Presenters of the same item share a target: a thousand windows on one file cost one lookup.
            let known = state.presenting.live.first { id, other in
                other.path == request.path && other.target?.path == request.path && state.presenting.table.presenters[id]?.item == item
            }
            let target = known?.value.target ?? target
            let id = state.presenting.table.add(item, purpose: request.purpose, patience: patience)
            state.presenting.numbers[session.number]?[request.number] = .some(id)
            state.presenting.live[id] = LivePresenter(
                session: session, number: request.number, path: request.path, target: target, scopes: reached, grant: home.grant,
                below: home.below)
            recordPresenters(state)
            let (missed, hasMissed) = state.events.after(request.since)
            session.send(.presenting(request.number, mark: state.events.mark, hasMissed: hasMissed))
            // A presenter that looks again needs no earlier events. It is reached now, even if a
            // grant was revoked meanwhile.
            if !hasMissed { for entry in missed where entry.event.kind != .revoked { ClaimService.tell(entry, to: id, &state) } }
            defer { state.presenting.hasBegun = true }
            return (nil, !state.presenting.hasBegun)
        }
        if let refusal { refuse(refusal) }
        if isFirst { startTimeoutThread() }
        // It was moved while it was not connected.
        if request.since != nil { relocatePresenters() }
    }

    private typealias Home = (grant: GrantID, below: [UInt8], scopes: Set<UInt32>)

    /// Returns the innermost grant that holds a path, the path below its directory, and all scopes that lead there.
    private func home(of path: [UInt8], _ scopes: [Scope]) -> Home? {
        let holders = scopes.compactMap { scope in files.path(of: scope).map { (path: $0, scope: scope) } }
            .filter { MountTable.path(path, isAtOrBelow: $0.path) }
        return holders.max { $0.path.count < $1.path.count }.map { inner in
            (inner.scope.grant, Array(path.dropFirst(inner.path.count)), Set(holders.map(\.scope.id.rawValue)))
        }
    }

    func endPresenting(_ number: UInt64, _ session: ControlSession) {
        let effect = state.withLock { state -> ClaimTable.Effect in
            guard case .some(.some(let id)) = state.presenting.numbers[session.number]?.removeValue(forKey: number) else {
                return ClaimTable.Effect()
            }
            state.presenting.live[id] = nil
            recordPresenters(state)
            return finish(state.presenting.table.remove(id).over, &state)
        }
        carryOut(effect)
    }

    /// Handles the end of a presenters' connection.
    ///
    /// Locking: call it with `state` held. Carry out the result without.
    func endPresenters(of session: ControlSession, _ state: inout State) -> ClaimTable.Effect {
        var over: [RoundID] = []
        for case let id? in (state.presenting.numbers.removeValue(forKey: session.number) ?? [:]).values {
            let effect = state.presenting.table.remove(id)
            over += effect.over
            state.presenting.failures += effect.passedOver.compactMap { state.presenting.failure($0, .ended) }
            state.presenting.live[id] = nil
        }
        recordPresenters(state)
        return finish(over, &state)
    }

    /// Logs failures, on a thread of its own, because it writes to the store.
    func reportFailures() {
        let failures = state.withLock { state in
            defer { state.presenting.failures = [] }
            return state.presenting.failures
        }
        if !failures.isEmpty { _ = BackgroundTask { [logFailures] in logFailures(failures) } }
    }

    // MARK: grants that go and come

    /// Releases the items presented through a scope that is closed, unless another scope leads
    /// there too. Their presenters are no longer waited for.
    ///
    /// Locking: call it with `state` held. Carry out the result without, and release the targets
    /// without.
    func release(_ scope: Scope, _ state: inout State) -> (ClaimTable.Effect, [ClaimTarget]) {
        var (over, targets) = ([RoundID](), [ClaimTarget]())
        for (id, presenter) in state.presenting.live where presenter.scopes.contains(scope.id.rawValue) {
            state.presenting.live[id]?.scopes.remove(scope.id.rawValue)
            guard presenter.scopes.count == 1, let target = presenter.target else { continue }
            targets.append(target)
            state.presenting.live[id]?.target = nil
            over += state.presenting.table.place(id, nil).over
            presenter.session.send(
                .tellsPresenter(
                    PresenterTelling(presenter: presenter.number, event: state.events.last, kind: .released, path: presenter.path)))
        }
        return (finish(over, &state), targets)
    }

    /// Looks up where presented items are now, on a thread of its own: items that were moved or are not reached and, when scopes were
    /// opened, all, because another grant may lead there too.
    func relocatePresenters(afterOpening grants: [GrantID] = []) {
        let isNeeded = state.withLock { state in
            grants.isEmpty ? state.presenting.live.values.contains { $0.needsLookup } : state.presenting.hasBegun
        }
        guard isNeeded else { return }
        _ = BackgroundTask { [self] in
            if !grants.isEmpty { recordRestored(grants) }
            let live = state.withLock { state in state.presenting.live.filter { !grants.isEmpty || $0.value.needsLookup } }
            var found: [(id: PresenterID, target: ClaimTarget, item: ClaimedItem)] = []
            for (id, presenter) in live {
                if let target = presenter.target, !presenter.needsLookup {
                    found.append((id, target, target.item()))
                } else if let target = try? files.target(presenter.target == nil ? currentPath(of: presenter) : presenter.path) {
                    found.append((id, target, target.item()))
                }
            }
            let meeting = files.scopes(meeting: found.map(\.item))
            let homes = zip(found, meeting).map { home(of: $0.target.path, $1) }
            state.withLock { state in
                for place in found.indices { put(found[place], homes[place], &state) }
            }
        }
    }

    private func currentPath(of presenter: LivePresenter) -> [UInt8] {
        let scope = files.names.open.first { $0.1.grant == presenter.grant }?.1
        return scope.flatMap { files.path(of: $0) }.map { $0 + presenter.below } ?? presenter.path
    }

    private func put(_ found: (id: PresenterID, target: ClaimTarget, item: ClaimedItem), _ home: Home?, _ state: inout State) {
        guard let old = state.presenting.live[found.id], let home else { return }
        let reached = home.scopes.subtracting(state.withdrawn)
        if reached.isEmpty { return }
        // Moved again during the lookup: that is looked up as well.
        if old.target != nil, old.path != found.target.path { return }
        state.presenting.live[found.id] = LivePresenter(
            session: old.session, number: old.number, path: found.target.path, target: found.target, scopes: reached, grant: home.grant,
            below: home.below)
        _ = state.presenting.table.place(found.id, found.item)
        guard old.target == nil else { return }
        func tell(_ kind: PresenterTelling.Kind, _ newPath: [UInt8]? = nil) {
            old.session.send(
                .tellsPresenter(
                    PresenterTelling(presenter: old.number, event: state.events.last, kind: kind, path: old.path, newPath: newPath)))
        }
        tell(.restored)
        if old.path != found.target.path { tell(.moved, found.target.path) }
    }

    private func recordRestored(_ grants: [GrantID]) {
        let paths = files.names.open.filter { grants.contains($0.scope.grant) }.compactMap { files.path(of: $0.1) }
        state.withLock { state in for path in paths { ClaimService.emit(.restored, path, pid: 0, &state) } }
    }
}
