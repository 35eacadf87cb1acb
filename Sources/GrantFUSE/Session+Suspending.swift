import CGrantFUSE
import CGrantSystem
import Glibc
import GrantSystem

/// Requests that were put aside before anything was done for them: as the kernel wrote them, so that they can be served later from the start.
struct SuspendedRequests {
    /// By the kernel's number.
    var waiting: [UInt64: SuspendedMessage] = [:]
    /// To be served now, the first first.
    var ready: [SuspendedMessage] = []
    var bytes = 0
    /// What each scope and each user has of them.
    private var bytesOfScopes: [UInt32: Int] = [:]
    private var bytesOfUsers: [UInt32: Int] = [:]
    /// Together they may not take more memory than this.
    static let mostBytes = 1 << 30
    /// What one counts besides its bytes, much more than it takes: so there are 32,768 at the most, of which the kernel sends so many on its own (`configure`).
    static let overhead = 32 << 10

    mutating func take(_ unique: UInt64) -> SuspendedMessage? {
        guard let message = waiting.removeValue(forKey: unique) else { return nil }
        count(message, -1)
        return message
    }

    /// False when there is no room. No scope and no user has more than what is left then, so that one alone takes half; the echo of what was written
    /// before (`isEcho`), which the kernel itself keeps small, is not asked for its share, because an error would lose it.
    mutating func add(_ message: SuspendedMessage, as unique: UInt64, isEcho: Bool) -> Bool {
        let size = message.size + Self.overhead
        let share = max(bytesOfScopes[message.scope, default: 0], bytesOfUsers[message.user, default: 0]) + size
        let left = Self.mostBytes - bytes - size
        guard left >= 0, isEcho || share <= left else { return false }
        waiting[unique] = message
        count(message, 1)
        return true
    }

    private mutating func count(_ message: SuspendedMessage, _ sign: Int) {
        let size = sign * (message.size + Self.overhead)
        bytes += size
        bytesOfScopes[message.scope, default: 0] += size
        bytesOfUsers[message.user, default: 0] += size
        if bytesOfScopes[message.scope] == 0 { bytesOfScopes[message.scope] = nil }
        if bytesOfUsers[message.user] == 0 { bytesOfUsers[message.user] = nil }
    }
}

/// A copy of one request, freed by whoever has taken it.
struct SuspendedMessage: @unchecked Sendable {
    // Safe to send: one holder at a time.
    let memory: UnsafeMutableRawPointer
    let size: Int
    /// Whose share it takes.
    let scope: UInt32
    let user: UInt32
    /// Where it is noted for the next daemon.
    private let note: RequestNote?

    /// Copies `message`, and notes it in `notes`.
    init(_ message: UnsafeRawBufferPointer, scope: UInt32 = 0, user: UInt32 = 0, notes: RequestNotes?) {
        memory = .allocate(byteCount: message.count, alignment: 8)
        if let start = message.baseAddress { memory.copyMemory(from: start, byteCount: message.count) }
        (size, self.scope, self.user) = (message.count, scope, user)
        note = notes?.add(UnsafeRawBufferPointer(start: memory, count: size))
    }

    /// Frees it, when it is answered or noted elsewhere.
    func end() {
        note?.remove()
        memory.deallocate()
    }
}

// A request that is put aside is still unanswered for the kernel. The library has forgotten it: what it would do for an INTERRUPT is done here.
extension Session {
    public enum Suspension: Sendable {
        /// Under this number, for `resume` or `answer`.
        case aside(UInt64)
        /// It needs neither: a revoker has answered it (EACCES), it was interrupted (EINTR), or there is no room for it (EAGAIN, or what was asked for).
        case answered(error: Int32)
    }

    /// Puts the request aside that the calling worker holds. `scope`: what it is about, for its share of memory. `isEcho`: see `SuspendedRequests.add`.
    /// `otherwise`: what it is answered with where there is no room.
    ///
    /// Locking: `suspended`, for a moment.
    public func suspend(_ request: consuming Request, scope: UInt32, isEcho: Bool = false, otherwise error: Int32 = EAGAIN) -> Suspension {
        let (worker, raw, sequence) = (request.worker, request.raw, request.sequence)
        guard let memory = UnsafeMutableRawPointer(bitPattern: worker.pointee.message.load(ordering: .relaxed)) else {
            request.reply(error: error)
            return .answered(error: error)
        }
        let size = worker.pointee.messageSize.load(ordering: .relaxed)
        let unique = memory.load(fromByteOffset: 8, as: UInt64.self)
        // As the kernel wrote it: `Message.passOn` may have given it the number of another kind.
        memory.storeBytes(of: worker.pointee.opcode.load(ordering: .relaxed), toByteOffset: 4, as: UInt32.self)
        let notes = context.pointee.notes
        let message = SuspendedMessage(
            UnsafeRawBufferPointer(start: memory, count: size), scope: scope, user: request.caller.uid, notes: notes)
        guard suspended.withLock({ $0.add(message, as: unique, isEcho: isEcho) }) else {
            message.end()
            request.reply(error: error)
            return .answered(error: error)
        }
        request.abandon()
        guard worker.pointee.claim(sequence) else {
            suspended.withLock { $0.take(unique) }?.end()
            return .answered(error: EACCES)
        }
        // An INTERRUPT that came before it could be found here has gone to the library; one that comes now is sent again by the kernel.
        let isInterrupted = fuse_req_interrupted(raw) != 0
        fuse_reply_none(raw)
        if isInterrupted { answer(suspended: unique, error: EINTR) }
        return isInterrupted ? .answered(error: EINTR) : .aside(unique)
    }

    /// Whether a request is still put aside: neither resumed nor answered nor interrupted.
    ///
    /// Locking: `suspended`, for a moment.
    public func isSuspended(_ unique: UInt64) -> Bool { suspended.withLock { $0.waiting[unique] != nil } }

    /// Serves requests that were put aside, from the start, on workers.
    ///
    /// Locking: `suspended`, for a moment.
    public func resume(_ uniques: [UInt64]) {
        let isAny = suspended.withLock { suspended -> Bool in
            for unique in uniques { if let message = suspended.take(unique) { suspended.ready.append(message) } }
            return !suspended.ready.isEmpty
        }
        if isAny { startResuming() }
    }

    /// Answers a request that was put aside. Nothing happens when it no longer is.
    ///
    /// Locking: `suspended`, for a moment.
    public func answer(suspended unique: UInt64, error: Int32) {
        guard let message = suspended.withLock({ $0.take(unique) }) else { return }
        // struct fuse_out_header. The kernel takes no answer to what it no longer waits for, and says so with ENOENT.
        var header: (UInt32, Int32, UInt64) = (16, 0 &- answerable(error), unique)
        _ = write(fuse_session_fd(pointer), &header, 16)
        message.end()
    }

    /// Whether the INTERRUPT was about a request that was put aside; it is answered then.
    func interruptSuspended(_ unique: UInt64) -> Bool {
        guard isSuspended(unique) else { return false }
        interrupted(unique)
        answer(suspended: unique, error: EINTR)
        return true
    }

    // MARK: workers

    /// Has somebody serve what is to be resumed: a new worker, one who stands by, or, when there is none but `rest`, whoever the watching thread finds later.
    func startResuming(leaving rest: Int = Readers.reserve) {
        if startWorker(.resuming) || readers.callOne(leaving: rest) { return }
        readyWaits.store(true, ordering: .relaxed)
        resumeCall.post()
        wakeWatch()
    }

    /// Whether something waits to be resumed.
    var hasReady: Bool { suspended.withLock { !$0.ready.isEmpty } }

    /// Serves what is to be resumed until there is no more, and ends then; or, `always`, whenever it is called.
    func serveResumed(_ worker: UnsafeMutablePointer<Worker>, always: Bool) {
        clinux_set_worker(worker)
        begin(worker)
        serveReady(worker)
        while always, !hasEnded {
            worker.pointee.giveBufferBack()
            worker.pointee.activity.store(.resting, ordering: .relaxed)
            resumeCall.waitForAny()
            worker.pointee.activity.store(.busy, ordering: .sequentiallyConsistent)
            serveReady(worker)
        }
        var none = fuse_buf()
        finish(worker, &none)
    }

    /// Serves what is to be resumed until there is no more.
    func serveReady(_ worker: UnsafeMutablePointer<Worker>) {
        while let (message, isMore) = nextResumed() {
            // One that hangs must not hold up those behind it.
            if isMore { startResuming() }
            var buffer = fuse_buf()
            buffer.mem = message.memory
            buffer.size = message.size
            let view = Message(buffer, Int32(clamping: message.size))
            // Of those that came during a pause.
            if view.opcode == Message.Opcode.interrupt, interruptSuspended(view.interrupted) {
                message.end()
                continue
            }
            _ = worker.pointee.note(view)
            worker.pointee.message.store(UInt(bitPattern: message.memory), ordering: .relaxed)
            process(view, &buffer, on: worker)
            message.end()
        }
    }

    private func nextResumed() -> (SuspendedMessage, isMore: Bool)? {
        suspended.withLock { suspended in
            guard !isPausing.load(ordering: .sequentiallyConsistent), !suspended.ready.isEmpty else { return nil }
            let first = suspended.ready.removeFirst()
            return (first, !suspended.ready.isEmpty)
        }
    }
}
