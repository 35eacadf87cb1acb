import GrantControl
import GrantModel
import GrantSystem
import GrantViewFS

/// What a mount counts besides requests. Behind the mounted view's `state`.
struct MountCounts {
    var denials: [GrantID: DenialCount] = [:]
    var revocations = WithdrawalCounts()
    var narrowings = WithdrawalCounts()

    mutating func note(denials count: UInt64, of grant: Grant) {
        denials[grant.id, default: DenialCount(grant: grant.id, name: grant.name, count: 0)].count &+= count
        denials[grant.id]?.name = grant.name
    }

    mutating func note(_ outcome: WithdrawalOutcome, _ withdrawal: ViewFS.Withdrawal) {
        let nanoseconds = Int64(saturating: outcome.milliseconds * 1e6)
        switch withdrawal {
        case .all: MountCounts.note(outcome, nanoseconds, in: &revocations)
        case .writing: MountCounts.note(outcome, nanoseconds, in: &narrowings)
        }
    }

    private static func note(_ outcome: WithdrawalOutcome, _ nanoseconds: Int64, in counts: inout WithdrawalCounts) {
        counts.durations.note(nanoseconds: nanoseconds)
        counts.flushedBytes &+= outcome.flushedBytes
        counts.released &+= outcome.pending
    }
}

extension MountedView {
    /// A snapshot of everything that this mount counts. Denials are up to a second behind.
    var metrics: MountMetrics {
        let counts = state.withLock { $0.counts }
        let timings = (files.session?.requestTimings ?? []).map {
            RequestDurations(opcode: $0.opcode, durations: DurationCounts(buckets: $0.buckets, nanoseconds: $0.nanoseconds))
        }
        let transferred = files.session?.transferred ?? (read: 0, written: 0)
        return MountMetrics(
            status: status, timings: timings, readBytes: transferred.read, writtenBytes: transferred.written,
            denials: counts.denials.values.sorted { $0.grant < $1.grant }, revocations: counts.revocations, narrowings: counts.narrowings,
            waitingLocks: UInt64(clamping: files.waitingLockCount), waitingForClaims: UInt64(clamping: files.waitingCount),
            workers: UInt64(clamping: files.session?.workerCount ?? 0),
            idlePollingNanoseconds: files.session?.idlePollingNanoseconds ?? 0)
    }
}
