import GrantControl
import GrantCoordinator
import Glibc
import GrantModel
import GrantSystem
import GrantViewFS

// Recovery of claims after a daemon's death, with `-o recover`. Held and waiting claims are recorded in memory that outlives the
// daemon, and the supervisor keeps the claimants' connections open. Presenters and subscribers reconnect by themselves.
extension ClaimService {
    /// Records the claim as it is now for the next daemon. `binding` is the result of
    /// `binding(of:)`, or nil for an advisory claim.
    ///
    /// Locking: call it with `state` held, before a claimant is told.
    func record(_ id: ClaimID, _ state: State, _ binding: [UInt8]? = nil) {
        guard let records = files.records?.claims, let claim = state.claims[id], let entry = state.table[id] else { return }
        var writer = HandoverWriter()
        writer.put(entry.claimant.high)
        writer.put(entry.claimant.low)
        writer.put(optional: entry.purpose)
        writer.put(descriptor: claim.session.descriptor)
        var targets = TargetTable()
        for part in claim.parts { targets.add(part.target) }
        targets.handOver(to: &writer)
        claim.handOver(to: &writer, targets)
        var description = HandoverWriter()
        description.put(UInt64(truncatingIfNeeded: writer.descriptors.count))
        for number in writer.descriptors { description.put(number) }
        records.note(id.rawValue, description.bytes + writer.bytes + (binding ?? [0]))
    }

    /// Returns how the claim binds operations through the mount, or nil if there is no recovery.
    ///
    /// Locking: call it without `state`.
    func binding(of id: ClaimID) -> [UInt8]? { files.records == nil ? nil : files.binding(ofClaim: id.rawValue) }

    /// Removes the record of a claim, before its descriptors are closed.
    func forget(_ id: ClaimID) { files.records?.claims.remove(id.rawValue) }

    /// Records how many presenters will reconnect.
    ///
    /// Locking: call it with `state` held.
    func recordPresenters(_ state: State) { files.records?.claims.note(presenters: state.presenting.live.count) }

    // MARK: in the next daemon

    /// Restores the claims of a dead daemon, before any client is served. `descriptors`: returns that daemon's descriptors with these
    /// numbers.
    func restore(
        _ left: ClaimRecords.Left, _ server: ControlServer, descriptors take: ([Int32]) throws(Errno) -> [Int32]
    ) throws(Errno) {
        let open = Set(files.names.open.map(\.scope.id.rawValue))
        var taken = State()
        var entries: [ClaimTable.Claim] = []
        var (sessions, lost): ([Int32: ControlSession], [LiveClaim]) = ([:], [])
        for (number, description) in left.claims {
            var head = try HandoverReader(description)
            var numbers: [Int32] = []
            for _ in 0..<(try head.takeCount(ofAtLeast: 4)) { numbers.append(try head.take()) }
            var reader = try HandoverReader(Array(description.dropFirst(8 + 4 * numbers.count)), descriptors: try take(numbers))
            let id = ClaimID(rawValue: number)
            let claimant = ClaimantID(high: try reader.take(), low: try reader.take())
            let purpose = try reader.takeOptional()
            let connection = try reader.takeDescriptor()
            guard connection >= 0, let old = numbers.first else { throw Errno(EBADMSG) }
            // Several claims may have come on one connection.
            let session: ControlSession
            if let known = sessions[old] {
                close(connection)
                session = known
            } else {
                session = try server.restoreSession(FileDescriptor(owning: connection))
                sessions[old] = session
            }
            let targets = try TargetTable(from: &reader)
            var claim = try LiveClaim(from: &reader, targets) { _ in session }
            claim.bound = try files.restoreClaim(number, from: &reader)
            // Presenters are asked again.
            claim.round = nil
            if !claim.isGranted { claim.isPrepared = false }
            for place in claim.parts.indices { claim.parts[place].scopes.formIntersection(open) }
            if claim.parts.contains(where: { $0.scopes.isEmpty }) {
                lost.append(claim)
                files.unbind(number)
                continue
            }
            taken.claims[id] = claim
            taken.numbers[session.number, default: [:]][claim.number] = .some(id)
            entries.append(
                ClaimTable.Claim(
                    restored: id, claimant: claimant, purpose: purpose, accesses: claim.parts.map(\.access), isHeld: claim.isGranted,
                    awaited: nil))
        }
        guard let table = ClaimTable(claims: entries, lastNumber: left.last) else { throw Errno(EBADMSG) }
        taken.table = table
        let (all, expected) = (taken, left.presenterCount)
        let bindings = all.claims.keys.map { ($0, binding(of: $0)) }
        state.withLock { state in
            state = all
            state.presenting.expected = expected
            for (id, binding) in bindings { record(id, state, binding) }
        }
        // They may not have reconnected when this daemon dies as well.
        files.records?.claims.note(presenters: expected)
        // It is unknown whether the claimants were told. A second message does no harm.
        for claim in all.claims.values where claim.isGranted { claim.session.send(.granted(claim: claim.number, reach: claim.reach)) }
        for claim in lost { claim.session.send(.refused(claim: claim.number, .revoked, text: "")) }
    }

    /// Resumes the restored claims, once sessions are served.
    func resumeRestored() {
        let (effect, hasClaims) = state.withLock { state -> (ClaimTable.Effect, Bool) in
            if state.presenting.expected > 0 { state.presenting.expectedUntil = Clock.monotonic + Self.reconnectTimeout }
            return (state.table.reconsider(), !state.claims.isEmpty)
        }
        carryOut(effect)
        // Grants may have become mandatory while no daemon served.
        if hasClaims { _ = BackgroundTask { [self] in rebind(until: 0) } }
    }

    /// How long presenters may take to reconnect before claims resume without them: nanoseconds.
    private static let reconnectTimeout: Int64 = 2_000_000_000

    /// Whether presenters of the previous daemon are expected to reconnect.
    var isExpectingPresenters: Bool {
        state.withLock { state in
            if state.presenting.expected > state.presenting.live.count, Clock.monotonic < state.presenting.expectedUntil { return true }
            state.presenting.expected = 0
            return false
        }
    }

    /// Waits until they have reconnected, or their time is over.
    func awaitPresenters() { while isExpectingPresenters { usleep(2_000) } }
}
