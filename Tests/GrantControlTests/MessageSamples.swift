import GrantModel

@testable import GrantControl

/// A message of which there are samples: at least one of every name, which is what each of its cases is called.
/// A case that is added does not compile before it has a name here, and then wants a sample.
protocol Sampled: WireMessage, Equatable {
    associatedtype Name: RawRepresentable<String>, CaseIterable
    var name: Name { get }
    static func samples() throws -> [Self]
}

let sampledMessages: [any Sampled.Type] = [
    ControlRequest.self, ControlReply.self, SessionRequest.self, SessionNews.self, HandoverMessage.self,
]

let sampleIDs = [GrantID(high: 1, low: 2), GrantID(high: .max, low: 0)]
private let (one, other) = (sampleIDs[0], sampleIDs[1])

extension ControlRequest: Sampled {
    enum Name: String, CaseIterable {
        case apply, release, shut, status, metrics, locate, progress, waits, questions, ping, unmount, session, handOver
    }

    var name: Name {
        switch self {
        case .apply: .apply
        case .release: .release
        case .shut: .shut
        case .status: .status
        case .metrics: .metrics
        case .locate: .locate
        case .progress: .progress
        case .waits: .waits
        case .questions: .questions
        case .ping: .ping
        case .unmount: .unmount
        case .session: .session
        case .handOver: .handOver
        }
    }

    static func samples() -> [ControlRequest] {
        [
            .apply(grants: sampleIDs, timeoutMilliseconds: 10_000), .apply(grants: [], timeoutMilliseconds: .max),
            .release(grants: sampleIDs, timeoutMilliseconds: 6), .shut(grants: sampleIDs, timeoutMilliseconds: 5), .status, .metrics,
            .locate(grants: sampleIDs), .locate(grants: []), .progress(grants: sampleIDs), .waits(claimant: other),
            .questions(after: .max, timeoutMilliseconds: 7), .ping, .unmount, .session, .handOver,
        ]
    }
}

extension ControlReply: Sampled {
    enum Name: String, CaseIterable { case applied, status, metrics, located, progress, waits, questions, failed, done }

    var name: Name {
        switch self {
        case .applied: .applied
        case .status: .status
        case .metrics: .metrics
        case .located: .located
        case .progress: .progress
        case .waits: .waits
        case .questions: .questions
        case .failed: .failed
        case .done: .done
        }
    }

    static func samples() throws -> [ControlReply] {
        let outcome = GrantOutcome(
            grant: other, confirmed: true, milliseconds: 0.25, drained: 1, flushedBytes: 2, invalidatedInodes: 3, pending: .max)
        var partial = outcome
        partial.unforgotten = [[0x61, 0xFF], [], [0x62]]
        var held = partial
        held.processes = [1, .max]
        var blocked = partial
        blocked.blockedDirectories = [2, .max]
        let refused = GrantOutcome(grant: one, confirmed: false)
        let (known, unknown, states) = (try grant(.inotify), try grant(nil), try GrantState.allCases.map { try grant(nil, $0) })
        return [
            .questions([]), .questions([OfferQuestion(number: 3, grant: other, thread: .max)]),
            .applied([outcome, refused]), .applied([]), .applied([partial, refused]), .applied([refused, partial]),
            .applied([held, refused]), .applied([blocked, refused]), .applied([held, blocked]),
            .status(try status([])), .status(try status(states)), .status(try status([known, unknown])),
            .status(try status([unknown] + HostChangeMeans.allCases.map { try grant($0) })), .metrics(try metrics()),
            .located([GrantPlace(grant: one, path: [0x2F, 0xFF]), GrantPlace(grant: other, path: [])]), .located([]),
            .progress(GrantProgress.Stage.allCases.map { GrantProgress(grant: one, stage: $0, done: 1, total: 2) }),
            .progress([GrantProgress(grant: other, stage: .flushing, done: .max, total: nil)]),
            .waits(holds: true, [ClaimBlock(waiting: one, blocker: other, claimant: GrantID(high: 3, low: 4))]), .waits(holds: false, []),
            .failed("why å\n"), .failed(""), .done,
        ]
    }

    private static func grant(_ means: HostChangeMeans?, _ state: GrantState = .unavailable) throws -> GrantStatus {
        GrantStatus(
            id: one, name: try GrantName(entry: [0xFF, 0x0A]), state: state, path: state == .active ? [0x2F, 0xFE] : nil, inodes: .max,
            inFlight: 3, traffic: GrantTraffic(operations: 1, readBytes: .max, writtenBytes: 2), hostChanges: means)
    }

    private static func status(_ grants: [GrantStatus]) throws -> MountStatus {
        MountStatus(
            view: try ViewName("å view"), mountpoint: [0x2F, 0x6D, 0xFF], pid: -1, since: Instant(nanoseconds: .min), grants: grants,
            inodes: 7, descriptors: 9, requests: [RequestCount(opcode: 15, count: .max), RequestCount(opcode: .max, count: 0)])
    }

    private static func metrics() throws -> MountMetrics {
        var (revocations, narrowings) = (WithdrawalCounts(), WithdrawalCounts())
        for place in revocations.durations.buckets.indices { revocations.durations.buckets[place] = 1 << UInt64(place) }
        (revocations.durations.nanoseconds, revocations.flushedBytes, revocations.released) = (3, 4, 5)
        narrowings.durations.note(nanoseconds: 5_000)
        (narrowings.flushedBytes, narrowings.released) = (6, 7)
        return MountMetrics(
            status: try status([try grant(nil)]), timings: [RequestDurations(opcode: 15, durations: revocations.durations)],
            readBytes: .max, writtenBytes: 1, denials: [DenialCount(grant: other, name: try GrantName(entry: [0xFE]), count: 6)],
            revocations: revocations, narrowings: narrowings, waitingLocks: 2, waitingForClaims: 4, workers: 3,
            idlePollingNanoseconds: 8)
    }
}

extension HandoverMessage: Sampled {
    enum Name: String, CaseIterable { case refused, state, ready, cannot, yours, serving }

    var name: Name {
        switch self {
        case .refused: .refused
        case .state: .state
        case .ready: .ready
        case .cannot: .cannot
        case .yours: .yours
        case .serving: .serving
        }
    }

    static func samples() -> [HandoverMessage] {
        [.refused("why å"), .state(bytes: .max, descriptors: 3), .ready, .cannot(""), .cannot("why not"), .yours, .serving]
    }
}
