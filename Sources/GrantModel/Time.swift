/// A moment: nanoseconds since 1970-01-01T00:00:00Z.
public struct Instant: Hashable, Comparable, Sendable {
    public let nanoseconds: Int64

    public init(nanoseconds: Int64) { self.nanoseconds = nanoseconds }
    public init(seconds: Int64) { nanoseconds = seconds * 1_000_000_000 }

    public static func < (left: Instant, right: Instant) -> Bool { left.nanoseconds < right.nanoseconds }

    public func adding(seconds: Double) -> Instant { Instant(nanoseconds: nanoseconds + Int64(seconds * 1e9)) }
    public func seconds(since earlier: Instant) -> Double { Double(nanoseconds - earlier.nanoseconds) / 1e9 }
}
