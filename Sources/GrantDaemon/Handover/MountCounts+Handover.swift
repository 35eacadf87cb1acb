import GrantControl
import Glibc
import GrantModel
import GrantSystem

// Handover of a mount's counters, beside those of requests.
extension MountCounts {
    func handOver(to state: inout HandoverWriter) {
        for counts in [revocations, narrowings] {
            state.put(UInt64(truncatingIfNeeded: counts.durations.buckets.count))
            for bucket in counts.durations.buckets { state.put(bucket) }
            state.put(counts.durations.nanoseconds)
            state.put(counts.flushedBytes)
            state.put(counts.released)
        }
        state.put(UInt64(truncatingIfNeeded: denials.count))
        for denial in denials.values {
            state.put(grant: denial.grant)
            state.put(bytes: denial.name.bytes)
            state.put(denial.count)
        }
    }

    init(from state: inout HandoverReader) throws(Errno) {
        (revocations, narrowings) = (try Self.withdrawals(from: &state), try Self.withdrawals(from: &state))
        for _ in 0..<(try state.takeCount(ofAtLeast: 32)) {
            let grant = try state.takeGrant()
            guard let name = try? GrantName(entry: try state.takeBytes()) else { throw Errno(EBADMSG) }
            denials[grant] = DenialCount(grant: grant, name: name, count: try state.take())
        }
    }

    private static func withdrawals(from state: inout HandoverReader) throws(Errno) -> WithdrawalCounts {
        var counts = WithdrawalCounts()
        guard try state.takeCount(ofAtLeast: 8) == counts.durations.buckets.count else { throw Errno(EBADMSG) }
        for place in counts.durations.buckets.indices { counts.durations.buckets[place] = try state.take() }
        counts.durations.nanoseconds = try state.take()
        (counts.flushedBytes, counts.released) = (try state.take(), try state.take())
        return counts
    }
}
