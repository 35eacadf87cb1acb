import GrantModel

extension ControlReply: WireMessage {
    package static let cases: [WireCase<ControlReply>] = [
        // Earlier commands know no other kind of outcome, and nearly always need none.
        WireCase(1, applied) {
            if case .applied(let outcomes) = $0, !outcomes.contains(where: \.isHeld), outcomes.allSatisfy(\.unforgotten.isEmpty) {
                outcomes
            } else {
                nil
            }
        },
        WireCase(8, { (outcomes: [WholeOutcome]) in .applied(outcomes.map(\.outcome)) }) {
            if case .applied(let outcomes) = $0, !outcomes.contains(where: \.isHeld) { outcomes.map(WholeOutcome.init) } else { nil }
        },
        WireCase(10, { (outcomes: [HeldOutcome]) in .applied(outcomes.map(\.outcome)) }) {
            if case .applied(let outcomes) = $0, outcomes.allSatisfy(\.blockedDirectories.isEmpty) {
                outcomes.map(HeldOutcome.init)
            } else {
                nil
            }
        },
        WireCase(11, { (outcomes: [BlockedOutcome]) in .applied(outcomes.map(\.outcome)) }) {
            if case .applied(let outcomes) = $0 { outcomes.map(BlockedOutcome.init) } else { nil }
        },
        // The means were added later. Without any, the form is that of earlier daemons.
        WireCase(2, status) {
            if case .status(let status) = $0, status.grants.allSatisfy({ $0.hostChanges == nil }) { status } else { nil }
        },
        WireCase(9, { (status: MountStatus, means: [UInt8]) throws(CodingFlaw) in .status(try status.adding(means)) }) {
            if case .status(let status) = $0 { (status, status.means) } else { nil }
        },
        WireCase(3, failed) { if case .failed(let text) = $0 { text } else { nil } },
        WireCase(4, .done),
        WireCase(5, located) { if case .located(let places) = $0 { places } else { nil } },
        WireCase(6, progress) { if case .progress(let grants) = $0 { grants } else { nil } },
        WireCase(7, waits) { if case .waits(let holds, let blocks) = $0 { (holds, blocks) } else { nil } },
        WireCase(16, metrics) { if case .metrics(let metrics) = $0 { metrics } else { nil } },
        WireCase(17, questions) { if case .questions(let questions) = $0 { questions } else { nil } },
    ]
}

extension GrantOutcome {
    fileprivate var isHeld: Bool { !processes.isEmpty || !blockedDirectories.isEmpty }
}

/// Without `unforgotten`, `processes` and `blockedDirectories`.
extension GrantOutcome: WireRecord {
    package static let fields = WireFields({
        GrantOutcome(
            grant: $0, confirmed: $1, milliseconds: $2, drained: $3, flushedBytes: $4, invalidatedInodes: $5, pending: $6)
    }) { ($0.grant, $0.confirmed, $0.milliseconds, $0.drained, $0.flushedBytes, $0.invalidatedInodes, $0.pending) }
}

private struct WholeOutcome: WireRecord {
    var outcome: GrantOutcome

    static let fields = WireFields({ (short: GrantOutcome, unforgotten: [[UInt8]]) in
        var outcome = short
        outcome.unforgotten = unforgotten
        return WholeOutcome(outcome: outcome)
    }) { ($0.outcome, $0.outcome.unforgotten) }
}

private struct HeldOutcome: WireRecord {
    var outcome: GrantOutcome

    static let fields = WireFields({ (whole: WholeOutcome, processes: [Int32]) in
        var outcome = whole.outcome
        outcome.processes = processes
        return HeldOutcome(outcome: outcome)
    }) { (WholeOutcome(outcome: $0.outcome), $0.outcome.processes) }
}

private struct BlockedOutcome: WireRecord {
    var outcome: GrantOutcome

    static let fields = WireFields({ (held: HeldOutcome, directories: [UInt64]) in
        var outcome = held.outcome
        outcome.blockedDirectories = directories
        return BlockedOutcome(outcome: outcome)
    }) { (HeldOutcome(outcome: $0.outcome), $0.outcome.blockedDirectories) }
}

extension GrantPlace: WireRecord {
    package static let fields = WireFields(GrantPlace.init(grant:path:)) { ($0.grant, $0.path) }
}

extension OfferQuestion: WireRecord {
    package static let fields = WireFields(OfferQuestion.init(number:grant:thread:)) { ($0.number, $0.grant, $0.thread) }
}

extension ClaimBlock: WireRecord {
    package static let fields = WireFields(ClaimBlock.init(waiting:blocker:claimant:)) { ($0.waiting, $0.blocker, $0.claimant) }
}

extension MountStatus: WireRecord {
    package static let fields = WireFields(
        MountStatus.init(view:mountpoint:pid:since:grants:inodes:descriptors:requests:)
    ) { ($0.view, $0.mountpoint, $0.pid, $0.since, $0.grants, $0.inodes, $0.descriptors, $0.requests) }
}

extension MountStatus {
    /// A number for each grant.
    fileprivate var means: [UInt8] { grants.map { $0.hostChanges?.rawValue ?? Self.unknownMeans } }

    /// Returns the status with a number for each grant, of which at least one is known.
    fileprivate func adding(_ means: [UInt8]) throws(CodingFlaw) -> MountStatus {
        guard means.count == grants.count, means.contains(where: { $0 != Self.unknownMeans }) else { throw .badValue }
        var status = self
        for (index, number) in means.enumerated() where number != Self.unknownMeans {
            status.grants[index].hostChanges = try valid(HostChangeMeans(rawValue: number))
        }
        return status
    }

    private static let unknownMeans = UInt8.max
}

extension GrantState: WireValue {}

/// Without `hostChanges`.
extension GrantStatus: WireRecord {
    package static let fields = WireFields({
        GrantStatus(id: $0, name: $1, state: $2, path: $3, inodes: $4, inFlight: $5, traffic: $6)
    }) { ($0.id, $0.name, $0.state, $0.path, $0.inodes, $0.inFlight, $0.traffic) }
}

extension GrantTraffic: WireRecord {
    package static let fields = WireFields(GrantTraffic.init(operations:readBytes:writtenBytes:)) {
        ($0.operations, $0.readBytes, $0.writtenBytes)
    }
}

extension RequestCount: WireRecord {
    package static let fields = WireFields(RequestCount.init(opcode:count:)) { ($0.opcode, $0.count) }
}
