import GrantModel
import GrantSystem

/// Durations, counted by `DurationBuckets`.
public struct DurationCounts: Sendable, Equatable {
    /// Each bucket counts only its own range.
    public var buckets: [UInt64]
    public var nanoseconds: UInt64

    public init(buckets: [UInt64] = Array(repeating: 0, count: DurationBuckets.count), nanoseconds: UInt64 = 0) {
        self.buckets = buckets
        self.nanoseconds = nanoseconds
    }

    public mutating func note(nanoseconds duration: Int64) {
        buckets[DurationBuckets.index(of: duration)] &+= 1
        nanoseconds &+= UInt64(clamping: duration)
    }
}

/// The durations of timed requests of one kind.
public struct RequestDurations: Sendable, Equatable {
    public var opcode: UInt32
    public var durations: DurationCounts

    public init(opcode: UInt32, durations: DurationCounts) {
        self.opcode = opcode
        self.durations = durations
    }
}

/// Withdrawals of one kind that a mount has carried out.
public struct WithdrawalCounts: Sendable, Equatable {
    public var durations = DurationCounts()
    public var flushedBytes: UInt64 = 0
    /// Operations whose callers were released because their filesystem hung.
    public var released: UInt64 = 0

    public init() {}

    init(durations: DurationCounts, flushedBytes: UInt64, released: UInt64) {
        (self.durations, self.flushedBytes, self.released) = (durations, flushedBytes, released)
    }
}

/// Operations on one grant that were refused since its view was mounted.
public struct DenialCount: Sendable, Equatable {
    public var grant: GrantID
    public var name: GrantName
    public var count: UInt64

    public init(grant: GrantID, name: GrantName, count: UInt64) {
        self.grant = grant
        self.name = name
        self.count = count
    }
}

/// A mount's counters since it was made, with its status.
public struct MountMetrics: Sendable, Equatable {
    public var status: MountStatus
    public var timings: [RequestDurations]
    public var readBytes: UInt64
    public var writtenBytes: UInt64
    public var denials: [DenialCount]
    /// Withdrawals of all access, and of writing alone.
    public var revocations: WithdrawalCounts
    public var narrowings: WithdrawalCounts
    /// Requests that wait for another owner's lock, and for the end of a claim.
    public var waitingLocks: UInt64
    public var waitingForClaims: UInt64
    public var workers: UInt64
    /// For how long idle processors were kept from halting.
    public var idlePollingNanoseconds: UInt64

    public init(
        status: MountStatus, timings: [RequestDurations], readBytes: UInt64, writtenBytes: UInt64, denials: [DenialCount],
        revocations: WithdrawalCounts, narrowings: WithdrawalCounts, waitingLocks: UInt64,
        waitingForClaims: UInt64, workers: UInt64, idlePollingNanoseconds: UInt64
    ) {
        self.status = status
        self.timings = timings
        self.readBytes = readBytes
        self.writtenBytes = writtenBytes
        self.denials = denials
        self.revocations = revocations
        self.narrowings = narrowings
        self.waitingLocks = waitingLocks
        self.waitingForClaims = waitingForClaims
        self.workers = workers
        self.idlePollingNanoseconds = idlePollingNanoseconds
    }
}

// MARK: on the wire

extension DurationCounts: WireRecord {
    package static let fields = WireFields({ (buckets: [UInt64], nanoseconds: UInt64) throws(CodingFlaw) in
        guard buckets.count == DurationBuckets.count else { throw .badValue }
        return DurationCounts(buckets: buckets, nanoseconds: nanoseconds)
    }) { ($0.buckets, $0.nanoseconds) }
}

extension RequestDurations: WireRecord {
    package static let fields = WireFields(RequestDurations.init(opcode:durations:)) { ($0.opcode, $0.durations) }
}

extension WithdrawalCounts: WireRecord {
    package static let fields = WireFields(WithdrawalCounts.init(durations:flushedBytes:released:)) {
        ($0.durations, $0.flushedBytes, $0.released)
    }
}

extension DenialCount: WireRecord {
    package static let fields = WireFields(DenialCount.init(grant:name:count:)) { ($0.grant, $0.name, $0.count) }
}

extension MountMetrics: WireRecord {
    package static let fields = WireFields(
        MountMetrics.init(
            status:timings:readBytes:writtenBytes:denials:revocations:narrowings:waitingLocks:waitingForClaims:workers:
            idlePollingNanoseconds:)
    ) {
        (
            $0.status, $0.timings, $0.readBytes, $0.writtenBytes, $0.denials, $0.revocations, $0.narrowings, $0.waitingLocks,
            $0.waitingForClaims, $0.workers, $0.idlePollingNanoseconds
        )
    }
}
