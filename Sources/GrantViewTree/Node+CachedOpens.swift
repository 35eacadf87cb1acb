import Glibc
import GrantSystem
import Synchronization

// What the daemon has open of a node where the kernel opens files by itself, and nobody says when it is no longer needed. Whoever uses it counts himself
// first; it is taken away only while nobody does. Neither takes a lock.
extension Node {
    /// In `cacheUses`: it is just being taken away, which takes a few instructions.
    private static let taking: UInt32 = 1 << 31

    /// What is kept stays open until `endUse`.
    @inline(__always)
    public func beginUse() {
        while cacheUses.wrappingAdd(1, ordering: .sequentiallyConsistent).newValue & Self.taking != 0 {
            cacheUses.wrappingSubtract(1, ordering: .relaxed)
            sched_yield()
        }
        if !wasCacheUsed.load(ordering: .relaxed) { wasCacheUsed.store(true, ordering: .relaxed) }
    }

    @inline(__always)
    public func endUse() { cacheUses.wrappingSubtract(1, ordering: .acquiringAndReleasing) }

    /// What is kept, for who has begun a use, or has the node to himself.
    public var cachedOpens: (reader: UInt64, writer: UInt64) {
        (cachedReader.load(ordering: .acquiring), cachedWriter.load(ordering: .acquiring))
    }

    public var hasCachedOpens: Bool { cachedReader.load(ordering: .relaxed) != 0 || cachedWriter.load(ordering: .relaxed) != 0 }

    /// Keeps an opened file or directory, for who has begun a use. The number that is kept: another one when somebody was quicker.
    public func cacheOpen(_ number: UInt64, forWriting: Bool) -> UInt64 {
        let place = forWriting ? 1 : 0
        let (done, seen) =
            place == 1
            ? cachedWriter.compareExchange(expected: 0, desired: number, ordering: .acquiringAndReleasing)
            : cachedReader.compareExchange(expected: 0, desired: number, ordering: .acquiringAndReleasing)
        return done ? number : seen
    }

    /// Takes away what is kept: whoever calls this closes it. nil while somebody uses it.
    public func takeCachedOpens() -> (reader: UInt64, writer: UInt64)? {
        guard cacheUses.compareExchange(expected: 0, desired: Self.taking, ordering: .sequentiallyConsistent).exchanged else { return nil }
        let taken = (cachedReader.exchange(0, ordering: .relaxed), cachedWriter.exchange(0, ordering: .relaxed))
        cacheUses.wrappingSubtract(Self.taking, ordering: .sequentiallyConsistent)
        return taken
    }

    /// Whether it was used since this was last asked.
    public func testAndClearUsed() -> Bool { wasCacheUsed.exchange(false, ordering: .relaxed) }

    /// Notes who writes to the file: what the kernel's cache brings later is written in that one's name.
    public func recordWriter(user: uid_t, group: gid_t, process: pid_t) {
        writerGroup.store(group, ordering: .relaxed)
        writerProcess.store(process, ordering: .relaxed)
        writerUser.store(user, ordering: .relaxed)
    }

    /// nil when nobody has asked to write.
    public var writer: (user: uid_t, group: gid_t, process: pid_t)? {
        let user = writerUser.load(ordering: .relaxed)
        return user == .max ? nil : (user, writerGroup.load(ordering: .relaxed), writerProcess.load(ordering: .relaxed))
    }

    /// Its descriptor alone leads to it: it never had a name.
    public func markNameless() { keepsDescriptor.store(true, ordering: .releasing) }

    func handOverCachedOpens(to state: inout HandoverWriter) {
        state.put(cachedReader.load(ordering: .relaxed))
        state.put(cachedWriter.load(ordering: .relaxed))
        state.put(flag: mayHavePages.load(ordering: .relaxed))
        state.put(writerUser.load(ordering: .relaxed))
        state.put(writerGroup.load(ordering: .relaxed))
        state.put(writerProcess.load(ordering: .relaxed))
    }

    func takeOverCached(from state: inout HandoverReader) throws(Errno) {
        // Before that nothing was.
        if state.version < 3 { return }
        cachedReader.store(try state.take(), ordering: .relaxed)
        cachedWriter.store(try state.take(), ordering: .relaxed)
        mayHavePages.store(try state.takeFlag(), ordering: .relaxed)
        writerUser.store(try state.take(), ordering: .relaxed)
        writerGroup.store(try state.take(), ordering: .relaxed)
        writerProcess.store(try state.take(), ordering: .relaxed)
    }
}
