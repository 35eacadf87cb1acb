/// SplitMix64, a random number generator: the same seed gives the same numbers.
public struct SplitMix: RandomNumberGenerator {
    private var seed: UInt64

    public init(seed: UInt64) { self.seed = seed }

    public mutating func next() -> UInt64 {
        seed &+= 0x9E37_79B9_7F4A_7C15
        var x = seed
        x = (x ^ (x >> 30)) &* 0xBF58_476D_1CE4_E5B9
        x = (x ^ (x >> 27)) &* 0x94D0_49BB_1331_11EB
        return x ^ (x >> 31)
    }
}
