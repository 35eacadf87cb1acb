/// Whether requests come so quickly that most of what they cost is the waking of processors. Told once a millisecond.
struct RequestRate {
    private(set) var isHigh = false
    private var quiet = 0

    /// A program that waits for each answer sends about 25 in a millisecond where processors halt in between; with 8, a seventh to a fourth of its time is
    /// waking.
    static let high: UInt32 = 8
    /// So many milliseconds of less end it: each change wakes all idle processors once (kernel/power/qos.c, cpu_latency_qos_apply).
    static let patience = 8

    /// `requests`: since it was told last. Returns whether `isHigh` has changed.
    mutating func update(_ requests: UInt32) -> Bool {
        quiet = requests >= Self.high ? 0 : quiet + 1
        let now = isHigh ? quiet < Self.patience : quiet == 0
        defer { isHigh = now }
        return now != isHigh
    }
}
