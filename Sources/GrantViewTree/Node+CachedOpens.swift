import Glibc
import GrantSystem
import Synchronization

// Cached opens: files that the daemon keeps open for a node if the kernel sends no OPEN and
// RELEASE. A use count pins them, and they are detached only while it is 0. Neither takes a lock.
extension Node {
    /// In `cacheUses`: the cached opens are being detached, which takes a few instructions.
    private static let taking: UInt32 = 1 << 31

    /// Pins the cached opens until `endUse`.
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

    /// The cached opens, for a user that pinned them or owns the node.
    public var cachedOpens: (reader: UInt64, writer: UInt64) {
        (cachedReader.load(ordering: .acquiring), cachedWriter.load(ordering: .acquiring))
    }

    public var hasCachedOpens: Bool { cachedReader.load(ordering: .relaxed) != 0 || cachedWriter.load(ordering: .relaxed) != 0 }

    /// Caches an open file or directory, for a user that pinned the cache.
    ///
    /// Returns the cached number. It is another one if another thread was faster.
    public func cacheOpen(_ number: UInt64, forWriting: Bool) -> UInt64 {
        let place = forWriting ? 1 : 0
        let (done, seen) =
            place == 1
            ? cachedWriter.compareExchange(expected: 0, desired: number, ordering: .acquiringAndReleasing)
            : cachedReader.compareExchange(expected: 0, desired: number, ordering: .acquiringAndReleasing)
        return done ? number : seen
    }

    /// Detaches the cached opens, which the caller then closes. nil while they are in use.
    public func takeCachedOpens() -> (reader: UInt64, writer: UInt64)? {
        guard cacheUses.compareExchange(expected: 0, desired: Self.taking, ordering: .sequentiallyConsistent).exchanged else { return nil }
        let taken = (cachedReader.exchange(0, ordering: .relaxed), cachedWriter.exchange(0, ordering: .relaxed))
        cacheUses.wrappingSubtract(Self.taking, ordering: .sequentiallyConsistent)
        return taken
    }

    /// Whether they were used since the last call.
    public func testAndClearUsed() -> Bool { wasCacheUsed.exchange(false, ordering: .relaxed) }

    /// Records the writer of the file: the kernel's write-back acts as that user.
    public func recordWriter(user: uid_t, group: gid_t, process: pid_t) {
        writerGroup.store(group, ordering: .relaxed)
        writerProcess.store(process, ordering: .relaxed)
        writerUser.store(user, ordering: .relaxed)
    }

    /// The last caller that requested a write. It is nil if there is none.
    public var writer: (user: uid_t, group: gid_t, process: pid_t)? {
        let user = writerUser.load(ordering: .relaxed)
        return user == .max ? nil : (user, writerGroup.load(ordering: .relaxed), writerProcess.load(ordering: .relaxed))
    }

    /// Marks a node that never had a name: only its descriptor leads to it.
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
        // Earlier versions had none.
        if state.version < 3 { return }
        cachedReader.store(try state.take(), ordering: .relaxed)
        cachedWriter.store(try state.take(), ordering: .relaxed)
        mayHavePages.store(try state.takeFlag(), ordering: .relaxed)
        writerUser.store(try state.take(), ordering: .relaxed)
        writerGroup.store(try state.take(), ordering: .relaxed)
        writerProcess.store(try state.take(), ordering: .relaxed)
    }
}
