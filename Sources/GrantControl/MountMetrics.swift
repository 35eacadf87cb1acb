import GrantModel
import GrantSystem

/// Durations, counted by `DurationBuckets`.
public struct DurationCounts: Sendable, Equatable {
    /// Of each bucket by itself.
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

/// How long the timed requests of one kind took.
public struct RequestDurations: Sendable, Equatable {
    public var opcode: UInt32
    public var durations: DurationCounts

    public init(opcode: UInt32, durations: DurationCounts) {
        self.opcode = opcode
        self.durations = durations
    }
}

/// Withdrawals of one kind that a mount has carried through.
public struct WithdrawalCounts: Sendable, Equatable {
    public var durations = DurationCounts()
    public var flushedBytes: UInt64 = 0
    /// Operations whose callers were released because their filesystem hung.
    public var released: UInt64 = 0

    public init() {}
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

/// What a mount counts, since it was made, beside its status.
public struct MountMetrics: Sendable, Equatable {
    public var status: MountStatus
    public var timings: [RequestDurations]
    public var readBytes: UInt64
    public var writtenBytes: UInt64
    public var denials: [DenialCount]
    /// Of everything, and of writing alone.
    public var revocations: WithdrawalCounts
    public var narrowings: WithdrawalCounts
    /// Requests that wait for somebody else's lock, and those that wait for the end of a claim.
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

extension DurationCounts {
    func write(to writer: inout BinaryWriter) {
        writer.write(list: buckets) { $0.write($1) }
        writer.write(nanoseconds)
    }

    static func read(from reader: inout MessageReader) throws(CodingFlaw) -> DurationCounts {
        let buckets = try reader.list { (reader) throws(CodingFlaw) in try reader.number(UInt64.self) }
        guard buckets.count == DurationBuckets.count else { throw .badValue }
        return DurationCounts(buckets: buckets, nanoseconds: try reader.number(UInt64.self))
    }
}

extension WithdrawalCounts {
    func write(to writer: inout BinaryWriter) {
        durations.write(to: &writer)
        writer.write(flushedBytes)
        writer.write(released)
    }

    static func read(from reader: inout MessageReader) throws(CodingFlaw) -> WithdrawalCounts {
        var counts = WithdrawalCounts()
        counts.durations = try DurationCounts.read(from: &reader)
        counts.flushedBytes = try reader.number(UInt64.self)
        counts.released = try reader.number(UInt64.self)
        return counts
    }
}

extension MountMetrics {
    func write(to writer: inout BinaryWriter) {
        status.write(to: &writer)
        writer.write(list: timings) { writer, timing in
            writer.write(timing.opcode)
            timing.durations.write(to: &writer)
        }
        writer.write(readBytes)
        writer.write(writtenBytes)
        writer.write(list: denials) { writer, denial in
            writer.write(denial.grant)
            writer.write(denial.name.bytes)
            writer.write(denial.count)
        }
        revocations.write(to: &writer)
        narrowings.write(to: &writer)
        writer.write(waitingLocks)
        writer.write(waitingForClaims)
        writer.write(workers)
        writer.write(idlePollingNanoseconds)
    }

    static func read(from reader: inout MessageReader) throws(CodingFlaw) -> MountMetrics {
        MountMetrics(
            status: try MountStatus.read(from: &reader),
            timings: try reader.list { (reader) throws(CodingFlaw) in
                RequestDurations(opcode: try reader.number(UInt32.self), durations: try DurationCounts.read(from: &reader))
            }, readBytes: try reader.number(UInt64.self), writtenBytes: try reader.number(UInt64.self),
            denials: try reader.list { (reader) throws(CodingFlaw) in
                let grant = try reader.id()
                guard let name = try? GrantName(entry: try reader.bytes()) else { throw .badValue }
                return DenialCount(grant: grant, name: name, count: try reader.number(UInt64.self))
            }, revocations: try WithdrawalCounts.read(from: &reader), narrowings: try WithdrawalCounts.read(from: &reader),
            waitingLocks: try reader.number(UInt64.self), waitingForClaims: try reader.number(UInt64.self),
            workers: try reader.number(UInt64.self), idlePollingNanoseconds: try reader.number(UInt64.self))
    }
}
