/// A point in time: nanoseconds since 1970-01-01T00:00:00Z.
public struct Instant: Hashable, Comparable, Sendable {
    public let nanoseconds: Int64

    public init(nanoseconds: Int64) { self.nanoseconds = nanoseconds }
    /// Saturates at the years 1677 and 2262.
    public init(seconds: Int64) {
        let (product, overflows) = seconds.multipliedReportingOverflow(by: 1_000_000_000)
        nanoseconds = overflows ? (seconds < 0 ? .min : .max) : product
    }

    public static func < (left: Instant, right: Instant) -> Bool { left.nanoseconds < right.nanoseconds }

    public func adding(seconds: Double) -> Instant {
        let (sum, overflows) = nanoseconds.addingReportingOverflow(Int64(saturating: seconds * 1e9))
        return Instant(nanoseconds: overflows ? (seconds < 0 ? .min : .max) : sum)
    }
    public func seconds(since earlier: Instant) -> Double { (Double(nanoseconds) - Double(earlier.nanoseconds)) / 1e9 }
}

extension Int64 {
    /// Rounds to the nearest integer. It saturates outside the range and is 0 for NaN.
    package init(saturating value: Double) {
        self = value.isNaN ? 0 : Int64(exactly: value.rounded(.towardZero)) ?? (value < 0 ? .min : .max)
    }
}
