import CGrantFUSE
import CGrantSystem
import Glibc
import Synchronization

/// What one thread of the session has of its own: the request it holds, whether that has been answered, a buffer for replies,
/// and the identity it acts with. Lives in raw memory at a fixed place, because the revoker looks into it.
public struct Worker: ~Copyable {
    /// Which slot of the coordinator belongs to this worker.
    public let slot: Int
    /// `sequence << 1 | open`: odd while a request waits for its answer. Whoever turns it even answers, and nobody else does.
    let answer = Atomic<UInt64>(0)
    /// Written by the worker before `answer` turns odd; read by whoever turned it even.
    let request = Atomic<UInt>(0)
    /// Whether the request is a close(2), which succeeds when it is answered in the worker's place. Written by the worker before it
    /// enters a scope, so whoever saw it inside reads it right.
    public let isClosing = Atomic<Bool>(false)
    /// What the request is and what it brings besides what the library passes on. Written and read on the worker's thread, before `process`.
    let opcode = Atomic<UInt32>(0)
    let killsSetID = Atomic<Bool>(false)
    /// Who asks. Written by the worker; whoever counts what users hold reads it.
    public let user = Atomic<UInt32>(0)
    /// Where the request is as the kernel wrote it. Of the worker's thread.
    let message = Atomic<UInt>(0)
    /// How many bytes it has, whatever its head says.
    let messageSize = Atomic<Int>(0)
    /// Whether it is about a request. Of the worker's thread.
    let isServing = Atomic<Bool>(false)
    /// What its thread does, for who wants to see all of them at rest: `Session.pause`. Written by the thread.
    let activity = Atomic<Activity>(.none)
    /// The thread's number while it has one (gettid(2)).
    let thread = Atomic<Int32>(0)
    /// How many requests of each kind came here: `RequestCounts`.
    let counts: UnsafeMutablePointer<Atomic<UInt64>>
    /// How long they took: `RequestTimings`.
    let timings: UnsafeMutablePointer<Atomic<UInt64>>
    /// For data on its way to the kernel: `Worker.bufferSize` bytes, page-aligned, touched only as far as used.
    public let buffer: UnsafeMutableRawPointer

    /// Where its request is noted for the next daemon; nil: nowhere. See `Session+Resending`.
    let record: UnsafeMutablePointer<clinux_request>?

    private let context: UnsafeMutablePointer<SessionContext>
    /// Where answers are written.
    var descriptor: Int32 { context.pointee.descriptor }

    public static let bufferSize = (1 << 20) + 4096

    enum Activity: UInt8, AtomicRepresentable {
        /// There is no thread, or it has not begun.
        case none
        case busy
        /// It waits for a request of the kernel's.
        case receiving
        /// It waits to be called, or until a pause is over.
        case idle
    }

    init(
        slot: Int, buffer: UnsafeMutableRawPointer, counts: UnsafeMutablePointer<Atomic<UInt64>>,
        timings: UnsafeMutablePointer<Atomic<UInt64>>, context: UnsafeMutablePointer<SessionContext>
    ) {
        self.timings = timings
        self.slot = slot
        self.buffer = buffer
        self.counts = counts
        self.context = context
        record = context.pointee.options.supervised.flatMap {
            slot < Int(truncatingIfNeeded: CLINUX_SUPERVISED_WORKERS) ? clinux_supervised_requests($0) + slot : nil
        }
    }

    /// Whether the kernel drops what it has cached of a range when that is written past the cache (FOPEN_DIRECT_IO), before and afterwards, so that
    /// mappings and other descriptors see it: protocol 7.42, Linux 6.14.
    public var dropsCacheAtDirectWrites: Bool { context.pointee.kernelProtocol >= 42 }
    /// Where requests are noted that are put aside; nil: nowhere.
    var journal: RequestJournal? { context.pointee.journal }
    /// Whether files opened past the cache can be mapped shared.
    public var mapsDirectly: Bool { context.pointee.mapsDirectly }

    /// Notes what `message` is before the library takes it apart. The kind, when it is one that is to be timed; else -1.
    @inline(__always)
    func countRequest(_ message: Message) -> Int {
        let opcode = message.opcode
        self.opcode.store(opcode, ordering: .relaxed)
        killsSetID.store(message.killsSetID, ordering: .relaxed)
        messageSize.store(message.size, ordering: .relaxed)
        let kind = Int(truncatingIfNeeded: min(opcode, UInt32(truncatingIfNeeded: RequestCounts.kinds - 1)))
        let count = counts + kind
        let before = count.pointee.load(ordering: .relaxed)
        // One writer: no exchange is needed.
        count.pointee.store(before &+ 1, ordering: .relaxed)
        return before & (RequestTimings.sampling - 1) == 0 ? kind : -1
    }

    /// Gives the memory of `buffer` back to the kernel, and what was in it. On the worker's own thread, between requests.
    func releaseBuffer() { _ = madvise(buffer, Self.bufferSize, Int32(truncatingIfNeeded: MADV_DONTNEED)) }

    /// Takes the right to answer the request that was begun as `sequence`. True for exactly one caller.
    @inline(__always)
    func claim(_ sequence: UInt64) -> Bool {
        answer.compareExchange(expected: sequence << 1 | 1, desired: sequence << 1, ordering: .sequentiallyConsistent).exchanged
    }
}

/// Who asks: a copy of fuse_ctx, made before the request can be answered by anybody else.
public struct Caller: Equatable, Sendable {
    public let uid: uid_t
    public let gid: gid_t
    public let pid: pid_t
    public let umask: mode_t

    public init(uid: uid_t, gid: gid_t, pid: pid_t, umask: mode_t) { (self.uid, self.gid, self.pid, self.umask) = (uid, gid, pid, umask) }

    /// Its effective capabilities, a bit for each, as far as they are the daemon's to go by; none when that cannot be found out. Not on the way
    /// of every request: it reads from /proc.
    public var capabilities: UInt64 { clinux_other_capabilities(pid) }
    public func has(capability: Int32) -> Bool { capabilities >> UInt64(truncatingIfNeeded: capability) & 1 != 0 }
}
