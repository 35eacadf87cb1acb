import CGrantSystem
import GrantFUSE
import Glibc
import Synchronization

/// The scope in which each thread made its last call, whether it was let in or refused, by the thread's number.
///
/// A reply is processed by the thread that waits for it, when that is given a processor. Until then it holds the locks of its call,
/// and has not yet installed the attributes that came with the reply. A thread that has made another call has processed the last one.
///
/// One word a thread, of memory that is taken when it is first written to: at most 16 MiB for all of the numbers that Linux gives.
/// Locking: none.
final class LastCalls: @unchecked Sendable {
    // Safe to share: the memory is mapped once and never unmapped before this ends; its elements are atomics.
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
        /// The kernel takes the attributes of its reply, though they were invalidated since the request was sent.
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

    /// Whether it can be told later whether the caller has processed a reply: its thread has a number here, and /proc shows it.
    @inline(__always)
    static func canWatch(_ caller: Caller) -> Bool {
        caller.pid > 0 && Int(truncatingIfNeeded: caller.pid) < count && (Identity.isRoots || caller.uid == geteuid())
    }

    /// Records a call, before it is answered.
    @inline(__always)
    func record(_ thread: pid_t, in scope: UInt32, installs: Bool = false) {
        guard let entries, thread > 0, Int(truncatingIfNeeded: thread) < Self.count else { return }
        let entry = entries + Int(truncatingIfNeeded: thread)
        let value = installs ? scope | Self.installs : scope
        // Nearly always so, and then no other processor has to fetch the line.
        if entry.pointee.load(ordering: .relaxed) == value { return }
        entry.pointee.store(value, ordering: .relaxed)
        let group = groups + Int(truncatingIfNeeded: thread) / Self.groupSize
        if !group.pointee.load(ordering: .relaxed) { group.pointee.store(true, ordering: .releasing) }
    }

    /// The threads whose last call was in a scope. They may have ended, and their numbers may be used anew.
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
