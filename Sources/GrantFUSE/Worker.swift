import CGrantFUSE
import CGrantSystem
import Glibc
import Synchronization

/// The state of one session thread.
///
/// It has its current request, whether that was answered, a reply buffer, its identity. It lives at
/// a fixed address in raw memory, because the revoker reads it.
public struct Worker: ~Copyable {
    /// The worker's slot in the coordinator.
    public let slot: Int
    /// `sequence << 1 | open`: odd while a request is unanswered.
    ///
    /// Only the thread that turns it even answers.
    let answer = Atomic<UInt64>(0)
    /// Written by the worker before `answer` turns odd.
    ///
    /// Read by the thread that turned it even.
    let request = Atomic<UInt>(0)
    /// Whether the request is a close(2).
    ///
    /// It succeeds if it is answered in the worker's place.
    ///
    /// Written before the worker enters a scope, so a thread that saw it inside reads it right.
    public let isClosing = Atomic<Bool>(false)
    /// Facts that the library does not pass on.
    ///
    /// Written and read on the worker's thread, before `process`.
    let opcode = Atomic<UInt32>(0)
    let killsSetID = Atomic<Bool>(false)
    /// The caller's user. Written by the worker, and read to count workers per user.
    public let user = Atomic<UInt32>(0)
    /// The address of the raw request. For the worker's thread.
    let message = Atomic<UInt>(0)
    /// Its size in bytes as received, which may differ from its header.
    let messageSize = Atomic<Int>(0)
    /// Whether it executes a request. For the worker's thread.
    let isServing = Atomic<Bool>(false)
    /// The thread's activity, for `Session.pause`. Written by the thread.
    let activity = Atomic<Activity>(.none)
    /// The thread ID while there is a thread (gettid(2)).
    let thread = Atomic<Int32>(0)
    /// Requests received by kind: `RequestCounts`.
    let counts: UnsafeMutablePointer<Atomic<UInt64>>
    /// Their latencies: `RequestTimings`.
    let timings: UnsafeMutablePointer<Atomic<UInt64>>
    /// The reply buffer: `Worker.bufferSize` bytes, page-aligned, touched only as far as used.
    public let buffer: UnsafeMutableRawPointer

    /// The record of its request for the next daemon. It is nil if there is none.
    ///
    /// See `Session+Resending`.
    let record: UnsafeMutablePointer<clinux_request>?

    private let context: UnsafeMutablePointer<SessionContext>
    /// The descriptor for replies.
    var descriptor: Int32 { context.pointee.descriptor }

    public static let bufferSize = (1 << 20) + 4096

    enum Activity: UInt8, AtomicRepresentable {
        /// There is no thread, or it has not started.
        case none
        case busy
        /// Waits for a request from the kernel.
        case receiving
        /// Waits to be woken, or for the end of a pause.
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

    /// Whether a write past the cache (FOPEN_DIRECT_IO) drops cached pages of its range.
    ///
    /// The kernel drops them before and afterwards, so that mappings and other descriptors see the
    /// write: protocol 7.42, Linux 6.14.
    public var dropsCacheAtDirectWrites: Bool { context.pointee.kernelProtocol >= 42 }
    /// The journal of parked requests. It is nil if there is none.
    var journal: RequestJournal? { context.pointee.journal }
    /// Whether files opened past the cache can be mapped shared.
    public var mapsDirectly: Bool { context.pointee.mapsDirectly }

    /// Records the facts of `message` before the library decodes it.
    ///
    /// Returns the kind if this request should be timed, else -1.
    @inline(__always)
    func countRequest(_ message: Message) -> Int {
        let opcode = message.opcode
        self.opcode.store(opcode, ordering: .relaxed)
        killsSetID.store(message.killsSetID, ordering: .relaxed)
        messageSize.store(message.size, ordering: .relaxed)
        let kind = Int(truncatingIfNeeded: min(opcode, UInt32(truncatingIfNeeded: RequestCounts.kinds - 1)))
        let count = counts + kind
        let before = count.pointee.load(ordering: .relaxed)
        // One writer: no atomic read-modify-write is needed.
        count.pointee.store(before &+ 1, ordering: .relaxed)
        return before & (RequestTimings.sampling - 1) == 0 ? kind : -1
    }

    /// Returns the buffer's memory to the kernel and discards its content.
    ///
    /// On the worker's thread, between requests.
    func releaseBuffer() { _ = madvise(buffer, Self.bufferSize, Int32(truncatingIfNeeded: MADV_DONTNEED)) }

    /// Claims the right to answer the request with this sequence number.
    ///
    /// True for exactly one caller.
    @inline(__always)
    func claim(_ sequence: UInt64) -> Bool {
        answer.compareExchange(expected: sequence << 1 | 1, desired: sequence << 1, ordering: .sequentiallyConsistent).exchanged
    }
}

/// The caller: a copy of fuse_ctx, made before any other thread can answer the request.
public struct Caller: Equatable, Sendable {
    public let uid: uid_t
    public let gid: gid_t
    public let pid: pid_t
    public let umask: mode_t

    public init(uid: uid_t, gid: gid_t, pid: pid_t, umask: mode_t) { (self.uid, self.gid, self.pid, self.umask) = (uid, gid, pid, umask) }

    /// Its effective capabilities, one bit each, valid in the daemon's user namespace.
    ///
    /// None if they cannot be read. Reads /proc: not for the hot path.
    public var capabilities: UInt64 { clinux_other_capabilities(pid) }
    public func has(capability: Int32) -> Bool { capabilities >> UInt64(truncatingIfNeeded: capability) & 1 != 0 }

    /// Whether it has a capability over a file with this owner and group, also as root of a user
    /// namespace.
    ///
    /// The file may get another owner meanwhile. Reads /proc.
    public func has(capability: Int32, overFileOf owner: uid_t, _ group: gid_t) -> Bool {
        clinux_other_capabilities_over(pid, owner, group) >> UInt64(truncatingIfNeeded: capability) & 1 != 0
    }

    /// The rights to other users' files that it has over a file with this owner and group.
    public func rights(overFileOf owner: uid_t, _ group: gid_t) -> Identity.FileRights {
        Identity.FileRights(rawValue: clinux_other_capabilities_over(pid, owner, group))
    }
}
