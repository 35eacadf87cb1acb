import GrantControl
import GrantCoordinator
import Glibc
import GrantModel
import GrantSystem
import GrantViewFS

// Presenters are asked before a claim is granted, and before a grant is withdrawn if somebody wants that.
extension ClaimService {
    /// Asks the presenters of what is claimed, all at once. The claim waits meanwhile, and goes on by itself when nobody is to be asked.
    ///
    /// On a thread of its own, because it looks where the presented items are now, which may hang with their filesystem.
    func askPresenters(of id: ClaimID) {
        guard let claim = state.withLock({ $0.claims[id] }) else { return }
        let items = claim.parts.map { $0.target.item() }
        let near = presentersNow(on: Set(items.flatMap(\.devices)))
        let (effect, pids) = state.withLock { state -> (ClaimTable.Effect, [Int32]?) in
            guard state.claims[id] != nil else { return (ClaimTable.Effect(), nil) }
            for place in items.indices { state.claims[id]?.parts[place].access.item = items[place] }
            var effect = state.table.update([id: claim.parts.indices.map { ItemAccess(items[$0], claim.parts[$0].access.use) }])
            for seen in near { place(seen, meets: items.contains { $0.overlaps(seen.item) }, &state) }
            // What is looked at can turn out to be in somebody's way.
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
            ClaimService.note(.claimWaits, claim, &state, text: "for presenters")
            let asked = Set(round.questions.compactMap { state.presenting.live[$0.presenter]?.session.peer.pid })
            return (effect, asked.sorted())
        }
        carryOut(effect)
        seatAnew()
        guard let pids else { return }
        if pids.isEmpty { return grant(id) }
        claim.session.send(.waits(claim: claim.number, pids: Array(pids.prefix(64))))
        clock.post()
    }

    /// A presented item, as its files say that it is.
    private struct Seen {
        let id: PresenterID
        let target: ClaimTarget
        let item: ClaimedItem
        /// Where it was moved to.
        let newPath: [UInt8]?
    }

    /// Where presented items are now, as far as they can be what is claimed.
    private func presentersNow(on devices: Set<UInt64>) -> [Seen] {
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
            looked[ObjectIdentifier(target)].map { Seen(id: id, target: target, item: $0.0, newPath: $0.1) }
        }
    }

    /// `meets`: it is asked about now. Of anything else somebody may just be in the middle of replacing it.
    ///
    /// Locking: call it with `state` held.
    private func place(_ seen: Seen, meets: Bool, _ state: inout State) {
        guard let presenter = state.presenting.live[seen.id], presenter.target === seen.target else { return }
        _ = state.presenting.table.place(seen.id, seen.item)
        // Somebody has renamed it without a claim. Whoever has said so before is believed.
        guard meets, let newPath = seen.newPath, !presenter.isMisplaced else { return }
        state.presenting.live[seen.id]?.path = newPath
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
            // It is one of this connection's that was asked, or nobody.
            for case let id? in (state.presenting.numbers[session.number] ?? [:]).values {
                guard let kind = state.presenting.table.kind(of: question, to: id) else { continue }
                if !isDone {
                    let failed = PresenterTable.PassedOver(presenter: id, kind: kind)
                    state.presenting.failures += [state.presenting.failure(failed, .unable)].compactMap { $0 }
                }
                let over = state.presenting.table.answer(question, by: id).over
                progress(&state)
                return roundsAreOver(over, &state)
            }
            // Too late: it is heard again, and ends nothing.
            for case let id? in (state.presenting.numbers[session.number] ?? [:]).values {
                _ = state.presenting.table.answer(question, by: id)
            }
            return ClaimTable.Effect()
        }
        carryOut(effect)
    }

    /// Rounds that are over: claims go on, who wants to revoke is told.
    ///
    /// Locking: call it with `state` held; what it returns is carried out without.
    func roundsAreOver(_ rounds: [RoundID], _ state: inout State) -> ClaimTable.Effect {
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
        // The claims of those who have answered wait in line again.
        for case (let round, .claim(let id)) in state.presenting.rounds {
            state.table.narrow(id, to: state.presenting.table.purposes(of: round))
        }
        return effect
    }

    /// A claim has ended, held or waiting: presenters that made way for it go on, and what it wrote is looked at.
    ///
    /// Locking: call it with `state` held, before the claim is taken out of the table.
    func letBack(_ claim: LiveClaim, _ id: ClaimID, _ state: inout State) {
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
        if claim.isGranted, !written.isEmpty, state.presenting.hasBegun || !state.watchers.isEmpty {
            state.presenting.written.append(Written(parts: written, pid: claim.session.peer.pid, purpose: purpose, moves: claim.moves))
        }
    }

    // MARK: the clock

    /// One thread for all who are waited for. It begins with the first presenter and lasts as long as the daemon.
    func startClock() {
        let watch: @Sendable () -> Void = { [self] in
            while true {
                let next = state.withLock { $0.presenting.table.nextDeadline }
                if let next { _ = clock.wait(until: next) } else { clock.waitForAny() }
                passOver()
            }
        }
        // Without a thread nobody would ever be passed over: then it is tried again with the next presenter.
        guard let thread = try? WorkerThread.start("grantfs-clock", watch) else { return state.withLock { $0.presenting.hasBegun = false } }
        thread.detach()
    }

    /// Passes over those whose time is over.
    private func passOver() {
        let effect = state.withLock { state -> ClaimTable.Effect in
            let passed = state.presenting.table.expire(at: Clock.monotonic)
            for one in passed.passedOver {
                guard var failure = state.presenting.failure(one, .late) else { continue }
                // /proc is no filesystem that anybody waits for.
                if ProcessState.isStopped(failure.peer.pid) { failure.reason = .stopped }
                state.presenting.failures.append(failure)
            }
            return roundsAreOver(passed.over, &state)
        }
        carryOut(effect)
    }

    // MARK: before a revocation

    /// Tells the presenters of what a grant leads to that it is about to be withdrawn, and asks them to save.
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
        clock.post()
    }

    /// Tells who wants to revoke how many have answered.
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
    /// Whether presenters are to save before: what is read is to be read as it is meant, and what is merged is merged with that.
    var asksForSave: Bool {
        if intent == .metadata { return false }
        return isWriting ? intent == .merging : savesFirst
    }
}
