import GrantModel
import TestSupport
import Testing

@testable import GrantControl

private let ids = [GrantID(high: 1, low: 2), GrantID(high: .max, low: 0)]

private let requests: [ControlRequest] = [
    .apply(grants: ids, timeoutMilliseconds: 10_000), .apply(grants: [], timeoutMilliseconds: .max), .status, .ping, .unmount, .session,
    .metrics,
    .shut(grants: ids, timeoutMilliseconds: 5), .locate(grants: ids), .progress(grants: ids), .waits(claimant: ids[1]),
    .release(grants: ids, timeoutMilliseconds: 6),
]

private func replies() throws -> [ControlReply] {
    let grant = GrantStatus(
        id: ids[0], name: try GrantName(entry: [0xFF, 0x0A]), state: .unavailable, path: nil, inodes: .max, inFlight: 3,
        traffic: GrantTraffic(operations: 1, readBytes: .max, writtenBytes: 2))
    let other = GrantStatus(id: ids[1], name: try GrantName(entry: [0x61]), state: .active, path: [0x2F, 0xFE], inodes: 0, inFlight: 0)
    let status = MountStatus(
        view: try ViewName("å view"), mountpoint: [0x2F, 0x6D, 0xFF], pid: -1, since: Instant(nanoseconds: .min), grants: [grant, other],
        inodes: 7, descriptors: 9)
    let outcome = GrantOutcome(
        grant: ids[1], confirmed: true, milliseconds: 0.25, drained: 1, flushedBytes: 2, invalidatedInodes: 3, pending: .max)
    var withdrawals = WithdrawalCounts()
    withdrawals.durations.note(nanoseconds: 5_000)
    (withdrawals.flushedBytes, withdrawals.released) = (4, 5)
    let metrics = MountMetrics(
        status: status, timings: [RequestDurations(opcode: 15, durations: withdrawals.durations)], readBytes: .max, writtenBytes: 1,
        denials: [DenialCount(grant: ids[1], name: try GrantName(entry: [0xFE]), count: 6)], revocations: withdrawals,
        narrowings: WithdrawalCounts(), waitingLocks: 2, waitingForClaims: 4, workers: 3, idlePollingNanoseconds: .max)
    return [
        .metrics(metrics),
        .applied([outcome, GrantOutcome(grant: ids[0], confirmed: false)]), .status(status), .failed("why\n"), .done,
        .progress([
            GrantProgress(grant: ids[0], stage: .flushing, done: .max, total: nil),
            GrantProgress(grant: ids[1], stage: .forgetting, done: 1, total: 2),
        ]),
        .waits(holds: true, [ClaimBlock(waiting: ids[0], blocker: ids[1], claimant: ids[0])]), .waits(holds: false, []),
        .located([GrantPlace(grant: ids[0], path: [0x2F, 0xFF]), GrantPlace(grant: ids[1], path: [])]),
    ]
}

@Suite struct CodingTests {
    @Test(arguments: requests) func aRequestIsReadAsItWasWritten(_ request: ControlRequest) throws {
        #expect(try ControlRequest.decode(request.encoded) == request)
    }

    @Test func aReplyIsReadAsItWasWritten() throws {
        for reply in try replies() { #expect(try ControlReply.decode(reply.encoded) == reply) }
    }

    @Test func everyShorterMessageIsRefused() throws {
        for request in requests {
            for count in 0..<request.encoded.count {
                #expect(throws: CodingFlaw.self) { try ControlRequest.decode(Array(request.encoded.prefix(count))) }
            }
        }
        for reply in try replies() {
            for count in 0..<reply.encoded.count {
                #expect(throws: CodingFlaw.self) { try ControlReply.decode(Array(reply.encoded.prefix(count))) }
            }
        }
    }

    @Test func whatFollowsAMessageIsRefused() throws {
        #expect(throws: CodingFlaw.hasMore) { try ControlRequest.decode(ControlRequest.ping.encoded + [0]) }
    }

    @Test func anotherVersionIsNamed() {
        #expect(throws: CodingFlaw.otherVersion) { try ControlRequest.decode([2, 3]) }
    }

    /// A count of four thousand million items in a message of ten bytes costs neither memory nor time.
    @Test func aCountThatIsOnlyClaimedIsRefused() {
        #expect(throws: CodingFlaw.endsEarly) { try ControlRequest.decode([1, 1, 0, 0, 0, 1, 0xFF, 0xFF, 0xFF, 0xFF]) }
        #expect(throws: CodingFlaw.endsEarly) { try ControlReply.decode([1, 3, 0xFF, 0xFF, 0xFF, 0xFF, 0x61]) }
    }

    /// Bytes by chance, and real messages with some bytes changed: never a trap, and what is accepted is written the same way.
    @Test func noInputTraps() throws {
        var random = SplitMix(seed: 42)
        let seeds = requests.map(\.encoded) + (try replies()).map(\.encoded)
        for round in 0..<100_000 {
            var bytes: [UInt8]
            if round % 2 == 0 {
                bytes = (0..<Int.random(in: 0...80, using: &random)).map { _ in UInt8.random(in: 0...255, using: &random) }
                if bytes.count > 1 { (bytes[0], bytes[1]) = (1, bytes[1] % 9) }
            } else {
                bytes = seeds.randomElement(using: &random) ?? []
                for _ in 0..<Int.random(in: 1...4, using: &random) where !bytes.isEmpty {
                    bytes[Int.random(in: bytes.indices, using: &random)] = UInt8.random(in: 0...255, using: &random)
                }
            }
            if let request = try? ControlRequest.decode(bytes) { #expect(request.encoded == bytes) }
            if let reply = try? ControlReply.decode(bytes) { #expect(reply.encoded == bytes) }
        }
    }
}
