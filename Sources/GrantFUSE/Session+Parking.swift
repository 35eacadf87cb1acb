import CGrantFUSE
import CGrantSystem
import Glibc
import GrantSystem

/// Requests that were parked before they had an effect.
///
/// They are kept as the kernel wrote them, and served from the start later.
struct ParkedRequests {
    /// Parked requests by the kernel's number.
    var waiting: [UInt64: ParkedMessage] = [:]
    /// Requests to serve now, in order.
    var ready: [ParkedMessage] = []
    var bytes = 0
    /// The memory of each scope and each user.
    private var bytesOfScopes: [UInt32: Int] = [:]
    private var bytesOfUsers: [UInt32: Int] = [:]
    /// The memory limit of all parked requests.
    static let maxBytes = 1 << 30
    /// The accounting overhead per request, much more than it takes.
    ///
    /// It limits the count to 32,768, as many background requests as the kernel sends
    /// (`configure`).
    static let overhead = 32 << 10

    mutating func take(_ unique: UInt64) -> ParkedMessage? {
        guard let message = waiting.removeValue(forKey: unique) else { return nil }
        count(message, -1)
        return message
    }

    /// Parks a request. Returns false if there is no room.
    ///
    /// A scope or a user may have no more than is left afterwards, so one alone can take half.
    /// Write-back (`isWriteBack`), which the kernel limits by itself, is exempt from shares,
    /// because an error would lose data.
    mutating func add(_ message: ParkedMessage, as unique: UInt64, isWriteBack: Bool) -> Bool {
        let size = message.size + Self.overhead
        let share = max(bytesOfScopes[message.scope, default: 0], bytesOfUsers[message.user, default: 0]) + size
        let left = Self.maxBytes - bytes - size
        guard left >= 0, isWriteBack || share <= left else { return false }
        waiting[unique] = message
        count(message, 1)
        return true
    }

    private mutating func count(_ message: ParkedMessage, _ sign: Int) {
        let size = sign * (message.size + Self.overhead)
        bytes += size
        bytesOfScopes[message.scope, default: 0] += size
        bytesOfUsers[message.user, default: 0] += size
        if bytesOfScopes[message.scope] == 0 { bytesOfScopes[message.scope] = nil }
        if bytesOfUsers[message.user] == 0 { bytesOfUsers[message.user] = nil }
    }
}

/// An owned copy of a raw request. Its holder frees it.
struct ParkedMessage: @unchecked Sendable {
    // Sendable: one holder at a time.
    let memory: UnsafeMutableRawPointer
    let size: Int
    /// The scope and the user to whose shares it counts.
    let scope: UInt32
    let user: UInt32
    /// Its entry in the journal for the next daemon.
    private let journalEntry: JournalEntry?

    /// Copies `message`, and adds it to `journal`.
    init(_ message: UnsafeRawBufferPointer, scope: UInt32 = 0, user: UInt32 = 0, journal: RequestJournal?) {
        memory = .allocate(byteCount: message.count, alignment: 8)
        if let start = message.baseAddress { memory.copyMemory(from: start, byteCount: message.count) }
        (size, self.scope, self.user) = (message.count, scope, user)
        journalEntry = journal?.add(UnsafeRawBufferPointer(start: memory, count: size))
    }

    /// Frees the copy, once the request is answered or journaled elsewhere.
    func end() {
        journalEntry?.remove()
        memory.deallocate()
    }
}

// To the kernel a parked request is unanswered, while the library has dropped it. So an INTERRUPT
// for it is handled here.
extension Session {
    public enum ParkResult: Sendable {
        /// Parked under this number, for `resume` or `answer`.
        case parked(UInt64)
        /// Answered already.
        ///
        /// A revoker answered it (EACCES), it was interrupted (EINTR), or there is no room (EAGAIN
        /// or `otherwise`).
        case answered(error: Int32)
    }

    /// Parks the request that the calling worker holds.
    ///
    /// Locking: `parked`, for a moment.
    ///
    /// - Parameters:
    ///   - scope: The scope to whose share of memory it counts.
    ///   - isWriteBack: See `ParkedRequests.add`.
    ///   - error: The error if there is no room.
    public func park(_ request: consuming Request, scope: UInt32, isWriteBack: Bool = false, otherwise error: Int32 = EAGAIN) -> ParkResult
    {
        let (worker, raw, sequence) = (request.worker, request.raw, request.sequence)
        guard let memory = UnsafeMutableRawPointer(bitPattern: worker.pointee.message.load(ordering: .relaxed)) else {
            request.reply(error: error)
            return .answered(error: error)
        }
        let size = worker.pointee.messageSize.load(ordering: .relaxed)
        let unique = memory.load(fromByteOffset: 8, as: UInt64.self)
        // Restores the opcode that `Message.translateOpcode` may have replaced.
        memory.storeBytes(of: worker.pointee.opcode.load(ordering: .relaxed), toByteOffset: 4, as: UInt32.self)
        let journal = context.pointee.journal
        let message = ParkedMessage(
            UnsafeRawBufferPointer(start: memory, count: size), scope: scope, user: request.caller.uid, journal: journal)
        guard parked.withLock({ $0.add(message, as: unique, isWriteBack: isWriteBack) }) else {
            message.end()
            request.reply(error: error)
            return .answered(error: error)
        }
        request.abandon()
        guard worker.pointee.claim(sequence) else {
            parked.withLock { $0.take(unique) }?.end()
            return .answered(error: EACCES)
        }
        // An INTERRUPT that came before the request was parked went to the library. The kernel
        // resends a later one.
        let isInterrupted = fuse_req_interrupted(raw) != 0
        fuse_reply_none(raw)
        if isInterrupted { answer(parked: unique, error: EINTR) }
        return isInterrupted ? .answered(error: EINTR) : .parked(unique)
    }

    /// Whether a request is still parked: neither resumed nor answered nor interrupted.
    ///
    /// Locking: `parked`, for a moment.
    public func isParked(_ unique: UInt64) -> Bool { parked.withLock { $0.waiting[unique] != nil } }

    /// Resumes parked requests: workers serve them from the start.
    ///
    /// Locking: `parked`, for a moment.
    public func resume(_ uniques: [UInt64]) {
        let isAny = parked.withLock { parked -> Bool in
            for unique in uniques { if let message = parked.take(unique) { parked.ready.append(message) } }
            return !parked.ready.isEmpty
        }
        if isAny { startResuming() }
    }

    /// Answers a parked request. Does nothing if it is no longer parked.
    ///
    /// Locking: `parked`, for a moment.
    public func answer(parked unique: UInt64, error: Int32) {
        guard let message = parked.withLock({ $0.take(unique) }) else { return }
        // struct fuse_out_header. The kernel rejects a reply to a request that is gone, with
        // ENOENT.
        var header: (UInt32, Int32, UInt64) = (16, 0 &- answerable(error), unique)
        _ = write(fuse_session_fd(pointer), &header, 16)
        message.end()
    }

    /// Answers a parked request with EINTR, unless it goes on waiting. Returns whether the INTERRUPT was for one.
    func interruptParked(_ unique: UInt64) -> Bool {
        guard isParked(unique) else { return false }
        if interrupted(unique) { answer(parked: unique, error: EINTR) }
        return true
    }

    // MARK: workers

    /// Finds a worker for resumed requests: a new one, or one on standby.
    ///
    /// If only `rest` standby workers are left, the monitor finds any worker later.
    func startResuming(leaving rest: Int = ReaderPool.reserve) {
        if startWorker(.resuming) || readers.wakeOne(leaving: rest) { return }
        runnablePending.store(true, ordering: .relaxed)
        resumeWakeup.post()
        wakeMonitor()
    }

    /// Whether resumed requests wait for a worker.
    var hasRunnable: Bool { parked.withLock { !$0.ready.isEmpty } }

    /// Serves resumed requests until none are left, then ends.
    ///
    /// With `always`, waits for the next ones.
    func serveResumed(_ worker: UnsafeMutablePointer<Worker>, always: Bool) {
        clinux_set_worker(worker)
        begin(worker)
        serveReady(worker)
        while always, !hasEnded {
            worker.pointee.releaseBuffer()
            worker.pointee.activity.store(.idle, ordering: .relaxed)
            resumeWakeup.waitForAny()
            worker.pointee.activity.store(.busy, ordering: .sequentiallyConsistent)
            serveReady(worker)
        }
        var none = fuse_buf()
        finish(worker, &none)
    }

    /// Serves resumed requests until none are left.
    func serveReady(_ worker: UnsafeMutablePointer<Worker>) {
        while let (message, isMore) = nextResumed() {
            // A request that hangs must not block those behind it.
            if isMore { startResuming() }
            var buffer = fuse_buf()
            buffer.mem = message.memory
            buffer.size = message.size
            let view = Message(buffer, Int32(clamping: message.size))
            // It arrived during a pause.
            if view.opcode == Message.Opcode.interrupt, interruptParked(view.interrupted) {
                message.end()
                continue
            }
            _ = worker.pointee.countRequest(view)
            worker.pointee.message.store(UInt(bitPattern: message.memory), ordering: .relaxed)
            process(view, &buffer, on: worker)
            message.end()
        }
    }

    private func nextResumed() -> (ParkedMessage, isMore: Bool)? {
        parked.withLock { parked in
            guard !isPausing.load(ordering: .sequentiallyConsistent), !parked.ready.isEmpty else { return nil }
            let first = parked.ready.removeFirst()
            return (first, !parked.ready.isEmpty)
        }
    }
}
