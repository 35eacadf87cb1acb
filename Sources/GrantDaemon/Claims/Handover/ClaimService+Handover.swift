import GrantControl
import GrantCoordinator
import Glibc
import GrantModel
import GrantSystem
import GrantViewFS

// Handover of claims, presenters and subscriptions to the next daemon. Their connections are handed over too, so clients notice
// nothing.
extension ClaimService {
    /// Waits, while the sessions pause, until nothing is under way that only this daemon can finish: a lookup, a claim that is about to
    /// be granted. Returns false if that is not so by `deadline` (`Clock.monotonic`).
    func drain(until deadline: Int64) -> Bool {
        while !isDrained {
            if Clock.monotonic > deadline { return false }
            usleep(1_000)
        }
        return true
    }

    private var isDrained: Bool {
        guard files.areClaimsSettled, rebindRequests.withLock({ $0 == 0 }) else { return false }
        return state.withLock { isDrained($0) }
    }

    private func isDrained(_ state: State) -> Bool {
        state.lookups == 0 && state.toUnbind.isEmpty && state.presenting.written.isEmpty && state.presenting.failures.isEmpty
            && state.claims.allSatisfy { id, claim in claim.isGranted || state.table[id]?.isHeld == false }
    }

    /// Writes everything, while everything is paused.
    func handOver(to writer: inout HandoverWriter) throws(HandoverRefusal) {
        do throws(Errno) {
            try files.handOverClaims(to: &writer)
            try state.withLock { (state) throws(Errno) in
                guard isDrained(state) else { throw Errno(EAGAIN) }
                var targets = TargetTable()
                for claim in state.claims.values { for part in claim.parts { targets.add(part.target) } }
                for presenter in state.presenting.live.values { if let target = presenter.target { targets.add(target) } }
                targets.handOver(to: &writer)
                state.events.handOver(to: &writer)
                writer.put(numbers: state.withdrawn)
                writer.put(UInt64(truncatingIfNeeded: state.subscribers.count))
                for session in state.subscribers.keys { writer.put(session) }
                state.table.handOver(to: &writer)
                writer.put(UInt64(truncatingIfNeeded: state.claims.count))
                for (id, claim) in state.claims {
                    writer.put(id.rawValue)
                    claim.handOver(to: &writer, targets)
                }
                state.presenting.handOver(to: &writer, targets)
            }
        } catch {
            throw HandoverRefusal("a claim is just being granted or ended")
        }
    }

    /// Reads what `handOver` wrote, before any client is served. `sessions`: by number.
    func takeOver(from reader: inout HandoverReader, _ sessions: [UInt64: ControlSession]) throws(Errno) {
        try files.takeOverClaims(from: &reader)
        var taken = State()
        let targets = try TargetTable(from: &reader)
        taken.events = try EventRing(from: &reader)
        taken.withdrawn = try reader.takeNumbers()
        for _ in 0..<(try reader.takeCount(ofAtLeast: 8)) {
            let number: UInt64 = try reader.take()
            taken.subscribers[number] = try Self.session(number, sessions)
        }
        taken.table = try ClaimTable(from: &reader)
        for _ in 0..<(try reader.takeCount(ofAtLeast: 16)) {
            let id = ClaimID(rawValue: try reader.take())
            let claim = try LiveClaim(from: &reader, targets) { (number) throws(Errno) in try Self.session(number, sessions) }
            guard taken.table[id] != nil else { throw Errno(EBADMSG) }
            taken.claims[id] = claim
            taken.numbers[claim.session.number, default: [:]][claim.number] = .some(id)
        }
        taken.presenting = try Presenting(from: &reader, targets, sessions)
        let (all, hasPresenters) = (taken, taken.presenting.hasBegun)
        let bindings = all.claims.keys.map { ($0, binding(of: $0)) }
        state.withLock { state in
            state = all
            for (id, binding) in bindings { record(id, state, binding) }
            recordPresenters(state)
        }
        if hasPresenters { startTimeoutThread() }
    }

    static func session(_ number: UInt64, _ sessions: [UInt64: ControlSession]) throws(Errno) -> ControlSession {
        guard let session = sessions[number] else { throw Errno(EBADMSG) }
        return session
    }
}

/// The targets that claims and presenters keep open, each once.
struct TargetTable {
    private var targets: [ClaimTarget] = []
    private var places: [ObjectIdentifier: UInt32] = [:]

    init() {}

    mutating func add(_ target: ClaimTarget) {
        if places[ObjectIdentifier(target)] != nil { return }
        places[ObjectIdentifier(target)] = UInt32(truncatingIfNeeded: targets.count)
        targets.append(target)
    }

    func handOver(to writer: inout HandoverWriter) {
        writer.put(UInt64(truncatingIfNeeded: targets.count))
        for target in targets { target.handOver(to: &writer) }
    }

    init(from reader: inout HandoverReader) throws(Errno) {
        for _ in 0..<(try reader.takeCount(ofAtLeast: 18)) { targets.append(try ClaimTarget(from: &reader)) }
    }

    /// Returns the number of an added target, or the number for “none” if `target` is nil.
    func number(of target: ClaimTarget?) -> UInt32 { target.flatMap { places[ObjectIdentifier($0)] } ?? .max }

    func take(_ number: UInt32) throws(Errno) -> ClaimTarget? {
        if number == .max { return nil }
        guard Int(truncatingIfNeeded: number) < targets.count else { throw Errno(EBADMSG) }
        return targets[Int(truncatingIfNeeded: number)]
    }
}

extension ClaimService.LiveClaim {
    func handOver(to writer: inout HandoverWriter, _ targets: TargetTable) {
        writer.put(session.number)
        writer.put(number)
        writer.put(grant: id)
        writer.put(UInt64(truncatingIfNeeded: parts.count))
        for part in parts {
            writer.put(targets.number(of: part.target))
            writer.put(accesses: [part.access])
            writer.put(bytes: part.request.path)
            writer.put(flag: part.request.isWriting)
            writer.put(part.request.intent.rawValue)
            writer.put(flag: part.request.savesFirst)
            writer.put(optional: part.request.newPath)
            writer.put(numbers: part.scopes)
        }
        writer.put(bytes: reach.map(\.rawValue))
        writer.put(holdMilliseconds)
        writer.put(flag: isGranted)
        writer.put(numbers: bound)
        writer.put(flag: isPrepared)
        writer.put(round?.rawValue ?? 0)
        writer.put(UInt64(truncatingIfNeeded: moves.count))
        for move in moves { writer.put(bytes: move) }
    }

    /// `find`: returns the session with a number.
    init(
        from reader: inout HandoverReader, _ targets: TargetTable, session find: (UInt64) throws(Errno) -> ControlSession
    ) throws(Errno) {
        session = try find(try reader.take())
        number = try reader.take()
        id = try reader.takeGrant()
        parts = []
        for _ in 0..<(try reader.takeCount(ofAtLeast: 40)) {
            guard let target = try targets.take(try reader.take()), let access = try reader.takeAccesses().first else {
                throw Errno(EBADMSG)
            }
            let (path, isWriting) = (try reader.takeBytes(), try reader.takeFlag())
            guard let intent = ItemRequest.Intent(rawValue: try reader.take()) else { throw Errno(EBADMSG) }
            let request = ItemRequest(
                path: path, isWriting: isWriting, intent: intent, savesFirst: try reader.takeFlag(), newPath: try reader.takeOptional())
            parts.append(ClaimService.ClaimPart(target: target, access: access, request: request, scopes: try reader.takeNumbers()))
        }
        reach = try reader.takeBytes().map { ItemReach(rawValue: $0) ?? .outside }
        holdMilliseconds = try reader.take()
        isGranted = try reader.takeFlag()
        bound = try reader.takeNumbers()
        isPrepared = try reader.takeFlag()
        let round: UInt64 = try reader.take()
        self.round = round == 0 ? nil : RoundID(rawValue: round)
        for _ in 0..<(try reader.takeCount(ofAtLeast: 8)) { moves.insert(try reader.takeBytes()) }
    }
}

extension ClaimTable {
    fileprivate func handOver(to writer: inout HandoverWriter) {
        writer.put(lastNumber)
        writer.put(UInt64(truncatingIfNeeded: claims.count))
        for claim in claims {
            writer.put(claim.id.rawValue)
            writer.put(claim.claimant.high)
            writer.put(claim.claimant.low)
            writer.put(optional: claim.purpose)
            writer.put(accesses: claim.accesses)
            writer.put(flag: claim.isHeld)
            writer.put(flag: claim.awaited != nil)
            writer.put(purposes: claim.awaited ?? [])
        }
    }

    fileprivate init(from reader: inout HandoverReader) throws(Errno) {
        let last: UInt64 = try reader.take()
        var claims: [Claim] = []
        for _ in 0..<(try reader.takeCount(ofAtLeast: 43)) {
            let id = ClaimID(rawValue: try reader.take())
            let claimant = ClaimantID(high: try reader.take(), low: try reader.take())
            let (purpose, accesses) = (try reader.takeOptional(), try reader.takeAccesses())
            let (isHeld, isAwaiting, awaited) = (try reader.takeFlag(), try reader.takeFlag(), try reader.takePurposes())
            claims.append(
                Claim(
                    restored: id, claimant: claimant, purpose: purpose, accesses: accesses, isHeld: isHeld,
                    awaited: isAwaiting ? awaited : nil))
        }
        guard let table = ClaimTable(claims: claims, lastNumber: last) else { throw Errno(EBADMSG) }
        self = table
    }
}

extension EventRing {
    fileprivate func handOver(to writer: inout HandoverWriter) {
        writer.put(grant: epoch)
        writer.put(last)
        writer.put(UInt64(truncatingIfNeeded: events.count))
        for entry in events {
            writer.put(entry.event.number)
            writer.put(entry.event.time.nanoseconds)
            writer.put(entry.event.kind.rawValue)
            writer.put(bytes: entry.event.path)
            writer.put(optional: entry.event.newPath)
            writer.put(entry.event.pid)
            writer.put(text: entry.event.text)
            writer.put(optional: entry.purpose)
        }
    }

    fileprivate init(from reader: inout HandoverReader) throws(Errno) {
        let (epoch, last): (GrantID, UInt64) = (try reader.takeGrant(), try reader.take())
        var events: [Entry] = []
        for _ in 0..<(try reader.takeCount(ofAtLeast: 39)) {
            let (number, time): (UInt64, Int64) = (try reader.take(), try reader.take())
            guard let kind = SessionEvent.Kind(rawValue: try reader.take()) else { throw Errno(EBADMSG) }
            let event = SessionEvent(
                number: number, time: Instant(nanoseconds: time), kind: kind, path: try reader.takeBytes(),
                newPath: try reader.takeOptional(),
                pid: try reader.take(), text: try reader.takeText())
            events.append(Entry(event: event, purpose: try reader.takeOptional()))
        }
        self.init(epoch: epoch, last: last, events: events)
    }
}

extension Presenting {
    fileprivate func handOver(to writer: inout HandoverWriter, _ targets: TargetTable) {
        let contents = table.contents
        writer.put(contents.last)
        writer.put(contents.lastQuestion)
        writer.put(UInt64(truncatingIfNeeded: contents.presenters.count))
        for presenter in contents.presenters {
            writer.put(presenter.id.rawValue)
            writer.put(optional: presenter.purpose)
            writer.put(flag: presenter.item != nil)
            if let item = presenter.item { writer.put(item: item) }
            writer.put(presenter.patience)
            writer.put(flag: presenter.isLate)
        }
        writer.put(UInt64(truncatingIfNeeded: contents.rounds.count))
        for round in contents.rounds {
            writer.put(round.id.rawValue)
            writer.put(UInt64(truncatingIfNeeded: round.open.count))
            for one in round.open {
                writer.put(one.question)
                writer.put(one.presenter.rawValue)
                writer.put(one.kind.rawValue)
                writer.put(one.deadline)
            }
            for presenters in [round.asked, round.aside, round.answered] {
                writer.put(UInt64(truncatingIfNeeded: presenters.count))
                for presenter in presenters { writer.put(presenter.rawValue) }
            }
            writer.put(flag: round.isOver)
        }
        writer.put(UInt64(truncatingIfNeeded: rounds.count))
        for (round, cause) in rounds {
            writer.put(round.rawValue)
            switch cause {
            case .claim(let id):
                writer.put(flag: true)
                writer.put(id.rawValue)
                writer.put(0 as UInt64)
            case .revocation(let session, let number):
                writer.put(flag: false)
                writer.put(session.number)
                writer.put(number)
            }
        }
        writer.put(UInt64(truncatingIfNeeded: live.count))
        for (id, presenter) in live {
            writer.put(id.rawValue)
            writer.put(presenter.session.number)
            writer.put(presenter.number)
            writer.put(bytes: presenter.path)
            writer.put(targets.number(of: presenter.target))
            writer.put(numbers: presenter.scopes)
            writer.put(grant: presenter.grant)
            writer.put(bytes: presenter.below)
        }
        writer.put(flag: hasBegun)
    }

    fileprivate init(from reader: inout HandoverReader, _ targets: TargetTable, _ sessions: [UInt64: ControlSession]) throws(Errno) {
        self.init()
        table = PresenterTable(try Self.contents(from: &reader))
        for _ in 0..<(try reader.takeCount(ofAtLeast: 25)) {
            let (round, isClaim, first, second): (UInt64, Bool, UInt64, UInt64) = (
                try reader.take(), try reader.takeFlag(), try reader.take(), try reader.take()
            )
            rounds[RoundID(rawValue: round)] =
                isClaim ? .claim(ClaimID(rawValue: first)) : .revocation(session: try ClaimService.session(first, sessions), number: second)
        }
        for _ in 0..<(try reader.takeCount(ofAtLeast: 60)) {
            let id = PresenterID(rawValue: try reader.take())
            let session = try ClaimService.session(try reader.take(), sessions)
            let presenter = LivePresenter(
                session: session, number: try reader.take(), path: try reader.takeBytes(), target: try targets.take(try reader.take()),
                scopes: try reader.takeNumbers(), grant: try reader.takeGrant(), below: try reader.takeBytes())
            live[id] = presenter
            numbers[session.number, default: [:]][presenter.number] = .some(id)
        }
        hasBegun = try reader.takeFlag()
    }

    private static func contents(from reader: inout HandoverReader) throws(Errno) -> PresenterTable.Contents {
        var contents = PresenterTable.Contents(presenters: [], rounds: [], last: try reader.take(), lastQuestion: try reader.take())
        for _ in 0..<(try reader.takeCount(ofAtLeast: 19)) {
            let (id, purpose) = (PresenterID(rawValue: try reader.take()), try reader.takeOptional())
            let item = try reader.takeFlag() ? try reader.takeItem() : nil
            contents.presenters.append(
                PresenterTable.Presenter(
                    restored: id, purpose: purpose, item: item, patience: try reader.take(), isLate: try reader.takeFlag()))
        }
        for _ in 0..<(try reader.takeCount(ofAtLeast: 41)) {
            var round = PresenterTable.Contents.Round(
                id: RoundID(rawValue: try reader.take()), open: [], asked: [], aside: [], answered: [], isOver: false)
            for _ in 0..<(try reader.takeCount(ofAtLeast: 25)) {
                let (question, presenter): (UInt64, UInt64) = (try reader.take(), try reader.take())
                guard let kind = PresenterQuestion(rawValue: try reader.take()) else { throw Errno(EBADMSG) }
                round.open.append((question, PresenterID(rawValue: presenter), kind, try reader.take()))
            }
            (round.asked, round.aside, round.answered) = (
                try reader.takePresenters(), try reader.takePresenters(), try reader.takePresenters()
            )
            round.isOver = try reader.takeFlag()
            contents.rounds.append(round)
        }
        return contents
    }
}

extension HandoverWriter {
    fileprivate mutating func put(purposes: Set<[UInt8]>) {
        put(UInt64(truncatingIfNeeded: purposes.count))
        for purpose in purposes { put(bytes: purpose) }
    }
}

extension HandoverReader {
    fileprivate mutating func takePurposes() throws(Errno) -> Set<[UInt8]> {
        var purposes = Set<[UInt8]>()
        for _ in 0..<(try takeCount(ofAtLeast: 8)) { purposes.insert(try takeBytes()) }
        return purposes
    }

    fileprivate mutating func takePresenters() throws(Errno) -> Set<PresenterID> {
        var presenters = Set<PresenterID>()
        for _ in 0..<(try takeCount(ofAtLeast: 8)) { presenters.insert(PresenterID(rawValue: try take())) }
        return presenters
    }
}
