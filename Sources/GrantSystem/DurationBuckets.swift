/// The buckets by which durations are counted.
///
/// Each reaches four times as far as the one before, the last one to infinity.
public enum DurationBuckets {
    public static let count = 12

    /// The inclusive upper ends of all buckets but the last, in nanoseconds: 4,096 ns to 4.3 s.
    public static var bounds: [UInt64] { (0..<(count - 1)).map { 1 << (12 + 2 * UInt64(truncatingIfNeeded: $0)) } }

    /// The bucket of a duration in nanoseconds. Negative durations and 0 are in the first.
    @inline(__always)
    public static func index(of nanoseconds: Int64) -> Int {
        if nanoseconds <= 4096 { return 0 }
        let bits = 64 - (nanoseconds &- 1).leadingZeroBitCount
        return min(count - 1, (bits - 11) / 2)
    }
}
