import Synchronization

/// Decides whether listings of a scope carry attributes.
///
/// If programs use the entries they list, attributes in the listing save a LOOKUP each. If not,
/// each entry costs a statx(2) for nothing. The kernel does not report which attributes it used. So
/// some listings omit attributes as a sample, and lookups of their entries are counted.
///
/// This applies from the second part of a listing on. The first always has attributes, so small
/// directories need no guess. It also decides whether the kernel may reuse a cached listing whose
/// names have expired. If programs use the entries, a new listing costs less than a LOOKUP of each.
public struct ReaddirPlusHeuristic: ~Copyable {
    /// How many lookups after a listing without attributes turn attributes on.
    private static let enough: UInt32 = 16
    /// One in this many listings omits attributes, as a sample.
    private static let sampleEvery: UInt32 = 32

    private let looks = Atomic<Bool>(false)
    private let lookups = Atomic<UInt32>(0)
    private let listings = Atomic<UInt32>(0)
    private let omittedAttributes = Atomic<Bool>(false)

    init() {}

    /// Decides for a listing with several parts, or one that the kernel has cached.
    ///
    /// Returns whether to omit attributes in the rest, or to use the kernel's cached listing.
    public func omitsAttributes() -> Bool {
        if !looks.load(ordering: .relaxed) {
            omittedAttributes.store(true, ordering: .relaxed)
            return true
        }
        guard listings.wrappingAdd(1, ordering: .relaxed).newValue % Self.sampleEvery == 0 else { return false }
        let followed = lookups.exchange(0, ordering: .relaxed) > 0
        if omittedAttributes.exchange(true, ordering: .relaxed), !followed { looks.store(false, ordering: .relaxed) }
        return true
    }

    /// Records the lookup of an entry that was listed without attributes.
    public func recordLookup() {
        if lookups.wrappingAdd(1, ordering: .relaxed).newValue >= Self.enough, !looks.load(ordering: .relaxed) {
            lookups.store(1, ordering: .relaxed)
            looks.store(true, ordering: .relaxed)
        }
    }
}
