import Synchronization

/// Whether who lists directories of a scope also looks at the entries. If so, an entry's attributes go out with the listing, and save a LOOKUP each;
/// if not, they would cost a statx(2) each for nothing. The kernel keeps what it got to itself, so now and then a listing goes out bare, and it
/// is seen whether lookups follow.
///
/// Only the second and later parts of a listing follow the habit: the first always has attributes, so small directories need no guess. And where the
/// kernel could list a directory by itself, with names whose time is over: if they are looked at, listing it anew costs less than a LOOKUP of each.
public struct ReaddirPlusHeuristic: ~Copyable {
    /// So many lookups of entries that went out bare make a habit.
    private static let enough: UInt32 = 16
    /// Every so many listings one goes out bare.
    private static let sampleEvery: UInt32 = 32

    private let looks = Atomic<Bool>(false)
    private let lookups = Atomic<UInt32>(0)
    private let listings = Atomic<UInt32>(0)
    private let omittedAttributes = Atomic<Bool>(false)

    init() {}

    /// A listing has more than its first part, or the kernel has it and needs none. Returns whether the rest is to go out bare, or the kernel's to be used.
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

    /// An entry that went out bare is looked up.
    public func recordLookup() {
        if lookups.wrappingAdd(1, ordering: .relaxed).newValue >= Self.enough, !looks.load(ordering: .relaxed) {
            lookups.store(1, ordering: .relaxed)
            looks.store(true, ordering: .relaxed)
        }
    }
}
