import GrantControl
import GrantCoordinator
import Glibc
import GrantModel
import GrantSystem
import GrantViewFS

// Presenters are asked before a claim is granted, and on request before a grant is revoked.
extension ClaimService {
    /// Asks the presenters of the claimed items, all at once. The claim is parked meanwhile. It
    /// resumes by itself if no presenter has to be asked.
    ///
    /// Runs on a thread of its own: it looks up where the presented items are now, which may hang with their filesystem.
    func askPresenters(of id: ClaimID) {
        guard let claim = state.withLock({ $0.claims[id] }) else { return }
        let items = claim.parts.map { $0.target.item() }
        let near = currentPresenters(on: Set(items.flatMap(\.devices)))
        let (effect, pids) = state.withLock { state -> (ClaimTable.Effect, [Int32]?) in
            guard state.claims[id] != nil else { return (ClaimTable.Effect(), nil) }
            for place in items.indices { state.claims[id]?.parts[place].access.item = items[place] }
            var effect = state.table.update([id: claim.parts.indices.map { ItemAccess(items[$0], claim.parts[$0].access.use) }])
            for located in near { place(located, meets: items.contains { $0.overlaps(located.item) }, &state) }
            // A lookup may show that the claim conflicts with another one after all.
            guard state.table[id]?.isHeld == true else { return (effect, nil) }
            state.claims[id]?.isPrepared = true
            let parts = claim.parts.indices.map { place in
                let (request, access) = (claim.parts[place].request, claim.parts[place].access)
                return PresentedPart(
                    ItemAccess(items[place], access.use), savesFirst: request.asksForSave, isDeleting: request.intent == .deleting)
            }
            guard let round = state.presenting.table.ask(for: parts, purpose: state.table[id]?.purpose, at: Clock.monotonic) else {
                return (effect, [])
            }
            state.claims[id]?.round = round.id
            for question in round.questions {
                send(
                    question, claim.id, about: claim.parts[question.part].target.path, pid: claim.session.peer.pid, question.patience, state
                )
            }
            if round.isOver { return (effect, []) }
            state.presenting.rounds[round.id] = .claim(id)
            effect += state.table.ask(id, of: round.purposes)
            record(id, state)
            ClaimService.emit(.claimWaits, claim, &state, text: "for presenters")
            let asked = Set(round.questions.compactMap { state.presenting.live[$0.presenter]?.session.peer.pid })
            return (effect, asked.sorted())
        }
        carryOut(effect)
        relocatePresenters()
        guard let pids else { return }
        if pids.isEmpty { return grant(id) }
        claim.session.send(.waits(claim: claim.number, pids: Array(pids.prefix(64))))
        timeoutWakeUp.post()
    }

    /// A presented item as it is now on disk.
    private struct LocatedPresenter {
        let id: PresenterID
        let target: ClaimTarget
        let item: ClaimedItem
        /// The path that it was moved to.
        let newPath: [UInt8]?
    }

    /// Returns the present paths of presented items that may be among the claimed ones.
    private func currentPresenters(on devices: Set<UInt64>) -> [LocatedPresenter] {
        let near = state.withLock { state in
            state.presenting.live.compactMap { id, presenter -> (PresenterID, ClaimTarget)? in
                guard let target = presenter.target, let item = state.presenting.table.presenters[id]?.item,
                    !item.devices.isDisjoint(with: devices)
                else { return nil }
                return (id, target)
            }
        }
        var looked: [ObjectIdentifier: (ClaimedItem, [UInt8]?)] = [:]
        for (_, target) in near where looked[ObjectIdentifier(target)] == nil {
            var newPath: [UInt8]?
            if case .moved(let place) = target.fate(wasAbsent: false) { newPath = place }
            looked[ObjectIdentifier(target)] = (target.item(), newPath)
        }
        return near.compactMap { id, target in
            looked[ObjectIdentifier(target)].map { LocatedPresenter(id: id, target: target, item: $0.0, newPath: $0.1) }
        }
    }

    /// `meets`: the presenter gets the question about it now. Any other item may just be in the
    /// middle of being replaced.
    ///
    /// Locking: call it with `state` held.
    private func place(_ located: LocatedPresenter, meets: Bool, _ state: inout State) {
        guard let presenter = state.presenting.live[located.id], presenter.target === located.target else { return }
        _ = state.presenting.table.place(located.id, located.item)
        // It was renamed without a claim. A rename that was announced before takes precedence.
        guard meets, let newPath = located.newPath, !presenter.needsLookup else { return }
        state.presenting.live[located.id]?.path = newPath
        presenter.session.send(
            .tellsPresenter(
                PresenterTelling(presenter: presenter.number, event: 0, kind: .moved, path: presenter.path, newPath: newPath)))
    }

    private func send(
        _ question: PresenterTable.Question, _ cause: GrantID, about path: [UInt8], pid: Int32, _ patience: Int64, _ state: State
    ) {
        guard let presenter = state.presenting.live[question.presenter], let kind = PresenterAsk.Kind(rawValue: question.kind.rawValue)
        else { return }
        presenter.session.send(
            .asks(
                PresenterAsk(
                    presenter: presenter.number, question: question.number, kind: kind, cause: cause, path: path, pid: pid,
                    milliseconds: UInt32(clamping: patience / 1_000_000))))
    }

    // MARK: answers

    func answer(_ question: UInt64, _ isDone: Bool, _ session: ControlSession) {
        let effect = state.withLock { state -> ClaimTable.Effect in
            // The question has to be one that a presenter of this connection was asked.
            for case let id? in (state.presenting.numbers[session.number] ?? [:]).values {
                guard let kind = state.presenting.table.kind(of: question, to: id) else { continue }
                if !isDone {
                    let failed = PresenterTable.PassedOver(presenter: id, kind: kind)
                    state.presenting.failures += [state.presenting.failure(failed, .unable)].compactMap { $0 }
                }
                let over = state.presenting.table.answer(question, by: id).over
                progress(&state)
                return finish(over, &state)
            }
            // Too late: a late answer ends nothing, but shows that the presenter responds again.
            for case let id? in (state.presenting.numbers[session.number] ?? [:]).values {
                _ = state.presenting.table.answer(question, by: id)
            }
            return ClaimTable.Effect()
        }
        carryOut(effect)
    }

    /// Handles finished rounds: claims resume, and revokers are told.
    ///
    /// Locking: call it with `state` held. Carry out the result without.
    func finish(_ rounds: [RoundID], _ state: inout State) -> ClaimTable.Effect {
        var effect = ClaimTable.Effect()
        for round in rounds {
            switch state.presenting.rounds.removeValue(forKey: round) {
            case .claim(let id): effect += state.table.answered(id)
            case .revocation(let session, let number):
                let (asked, answered) = state.presenting.table.progress(of: round)
                _ = state.presenting.table.end(round)
                session.send(.preparing(number, asked: UInt32(clamping: asked), answered: UInt32(clamping: answered), isOver: true))
            case nil: break
            }
        }
        // Claims of presenters that have answered queue up again.
        for case (let round, .claim(let id)) in state.presenting.rounds {
            state.table.narrow(id, to: state.presenting.table.purposes(of: round))
        }
        return effect
    }

    /// Handles the end of a claim, held or waiting: presenters that relinquished for it may continue, and what it wrote is checked.
    ///
    /// Locking: call it with `state` held, before the claim is removed from the table.
    func releasePresenters(_ claim: LiveClaim, _ id: ClaimID, _ state: inout State) {
        let purpose = state.table[id]?.purpose
        if let round = claim.round {
            state.presenting.rounds[round] = nil
            for presenter in state.presenting.table.end(round) {
                guard let live = state.presenting.live[presenter] else { continue }
                live.session.send(
                    .tellsPresenter(PresenterTelling(presenter: live.number, event: 0, kind: .reacquired, path: live.path)))
            }
        }
        let written = claim.parts.filter { $0.request.isWriting }
        if claim.isGranted, !written.isEmpty, state.presenting.hasBegun || !state.subscribers.isEmpty {
            state.presenting.written.append(EndedWrite(parts: written, pid: claim.session.peer.pid, purpose: purpose, moves: claim.moves))
        }
    }

    // MARK: the clock

    /// Starts the one thread that watches all time-outs. It starts with the first presenter and runs as long as the daemon.
    func startTimeoutThread() {
        let watch: @Sendable () -> Void = { [self] in
            while true {
                let next = state.withLock { $0.presenting.table.nextDeadline }
                if let next { _ = timeoutWakeUp.wait(until: next) } else { timeoutWakeUp.waitForAny() }
                passOverLate()
            }
        }
        // Without the thread no presenter would ever time out, so the start is tried again with the next presenter.
        guard let thread = try? WorkerThread.start("grantfs-clock", watch) else { return state.withLock { $0.presenting.hasBegun = false } }
        thread.detach()
    }

    /// Passes over presenters whose time is over.
    private func passOverLate() {
        let effect = state.withLock { state -> ClaimTable.Effect in
            let passed = state.presenting.table.expire(at: Clock.monotonic)
            for one in passed.passedOver {
                guard var failure = state.presenting.failure(one, .late) else { continue }
                // /proc cannot hang.
                if ProcessState.isStopped(failure.peer.pid) { failure.reason = .stopped }
                state.presenting.failures.append(failure)
            }
            return finish(passed.over, &state)
        }
        carryOut(effect)
    }

    // MARK: before a revocation

    /// Tells the presenters of a grant that it is about to be revoked, and asks them to save.
    func prepareRevocation(_ number: UInt64, _ id: GrantID, _ grant: GrantID, _ milliseconds: UInt32, _ session: ControlSession) {
        let scopes = Set(files.names.open.filter { $0.scope.grant == grant }.map(\.scope.id.rawValue))
        state.withLock { state in
            let concerned = state.presenting.live.filter { !$0.value.scopes.isDisjoint(with: scopes) }.map(\.key).sorted()
            let deadline = Clock.monotonic + Int64(truncatingIfNeeded: milliseconds) &* 1_000_000
            guard let round = state.presenting.table.ask(beforeRevocation: concerned, until: deadline) else {
                return session.send(.preparing(number, asked: 0, answered: 0, isOver: true))
            }
            state.presenting.rounds[round.id] = .revocation(session: session, number: number)
            for question in round.questions {
                let path = state.presenting.live[question.presenter]?.path ?? []
                send(question, id, about: path, pid: 0, Int64(truncatingIfNeeded: milliseconds) &* 1_000_000, state)
            }
            session.send(.preparing(number, asked: UInt32(clamping: concerned.count), answered: 0, isOver: false))
        }
        timeoutWakeUp.post()
    }

    /// Reports to the revoker how many have answered.
    private func progress(_ state: inout State) {
        for case (let round, .revocation(let session, let number)) in state.presenting.rounds {
            let (asked, answered) = state.presenting.table.progress(of: round)
            if asked != answered {
                session.send(.preparing(number, asked: UInt32(clamping: asked), answered: UInt32(clamping: answered), isOver: false))
            }
        }
    }
}

extension ClaimTable.Effect {
    static func += (effect: inout ClaimTable.Effect, more: ClaimTable.Effect) {
        effect.granted += more.granted
        effect.deadlocked += more.deadlocked
    }
}

extension ItemRequest {
    /// Whether presenters are asked to save first: a reader, and a writer that merges, need the latest content.
    var asksForSave: Bool {
        if intent == .metadata { return false }
        return isWriting ? intent == .merging : savesFirst
    }
}
