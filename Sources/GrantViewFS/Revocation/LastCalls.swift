import CGrantSystem
import GrantFUSE
import Glibc
import Synchronization

/// The scope of each thread's last call, admitted or refused, by thread number.
///
/// A reply is processed by the thread that waits for it, once it gets a processor. Until then the
/// thread holds the locks of its call, and has not installed the attributes of the reply. A thread
/// that has made another call has processed the last one.
///
/// Each thread has one word, in memory that is allocated at the first write: at most 16 MiB for all
/// thread numbers of Linux. Locking: none.
final class LastCalls: @unchecked Sendable {
    // Sendable: the memory is mapped once and unmapped in `deinit`. Its elements are atomics.
    private let entries: UnsafeMutablePointer<Atomic<UInt32>>?
    /// Whether any thread of a group was ever recorded.
    private let groups: UnsafeMutablePointer<Atomic<Bool>>

    /// PID_MAX_LIMIT of <linux/threads.h>.
    private static let count = 1 << 22
    private static let groupSize = 1 << 10
    /// Set in an entry whose reply installs attributes that an invalidation does not outdate.
    private static let installs: UInt32 = 1 << 31

    /// A thread whose last call was in a scope.
    struct LastCaller: Hashable {
        let thread: pid_t
        /// Whether the kernel applies the reply's attributes even if they were invalidated
        /// meanwhile.
        let installs: Bool
    }

    init() {
        let size = Self.count * MemoryLayout<Atomic<UInt32>>.stride
        let memory = mmap(nil, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)
        entries = memory == MAP_FAILED ? nil : memory?.bindMemory(to: Atomic<UInt32>.self, capacity: Self.count)
        groups = .allocate(capacity: Self.count / Self.groupSize)
        for group in 0..<Self.count / Self.groupSize { (groups + group).initialize(to: Atomic(false)) }
    }

    deinit {
        if let entries { munmap(entries, Self.count * MemoryLayout<Atomic<UInt32>>.stride) }
        groups.deinitialize(count: Self.count / Self.groupSize)
        groups.deallocate()
    }

    /// Whether it can be determined later that the caller has processed a reply.
    ///
    /// Its thread must have a number here, and /proc must show it.
    @inline(__always)
    static func canWatch(_ caller: Caller) -> Bool {
        caller.pid > 0 && Int(truncatingIfNeeded: caller.pid) < count && (Identity.isRoots || caller.uid == geteuid())
    }

    /// Records a call, before its reply.
    @inline(__always)
    func record(_ thread: pid_t, in scope: UInt32, installs: Bool = false) {
        guard let entries, thread > 0, Int(truncatingIfNeeded: thread) < Self.count else { return }
        let entry = entries + Int(truncatingIfNeeded: thread)
        let value = installs ? scope | Self.installs : scope
        // True for nearly every call. No other processor then has to fetch the cache line.
        if entry.pointee.load(ordering: .relaxed) == value { return }
        entry.pointee.store(value, ordering: .relaxed)
        let group = groups + Int(truncatingIfNeeded: thread) / Self.groupSize
        if !group.pointee.load(ordering: .relaxed) { group.pointee.store(true, ordering: .releasing) }
    }

    /// The threads whose last call was in a scope.
    ///
    /// They may have ended, and their numbers may have been reused.
    func callers(in scope: UInt32) -> [LastCaller] {
        guard let entries else { return [] }
        var callers: [LastCaller] = []
        for group in 0..<Self.count / Self.groupSize where groups[group].load(ordering: .acquiring) {
            for index in group * Self.groupSize..<(group + 1) * Self.groupSize {
                let entry = entries[index].load(ordering: .relaxed)
                guard entry & ~Self.installs == scope else { continue }
                callers.append(LastCaller(thread: pid_t(truncatingIfNeeded: index), installs: entry & Self.installs != 0))
            }
        }
        return callers
    }
}
