/// Detects whether waking processors is most of the cost of requests.
///
/// They then arrive quickly. Updated once a millisecond.
struct RequestRate {
    private(set) var isHigh = false
    private var quiet = 0

    /// Requests per millisecond from which on the rate is high.
    ///
    /// A program that waits for each reply sends about 25 if processors halt in between. At 8, a
    /// seventh to a quarter of its time is wake-ups.
    static let high: UInt32 = 8
    /// Milliseconds below the rate that end it.
    ///
    /// Each change wakes all idle processors once (kernel/power/qos.c, cpu_latency_qos_apply).
    static let patience = 8

    /// Adds the requests since the last call. Returns whether `isHigh` changed.
    mutating func update(_ requests: UInt32) -> Bool {
        quiet = requests >= Self.high ? 0 : quiet + 1
        let now = isHigh ? quiet < Self.patience : quiet == 0
        defer { isHigh = now }
        return now != isHigh
    }
}
