import CGrantFUSE
import CGrantSystem
import Glibc
import GrantSystem

/// Requests that were put aside before anything was done for them: as the kernel wrote them, so that they can be served later from the start.
struct ParkedRequests {
    /// By the kernel's number.
    var waiting: [UInt64: ParkedMessage] = [:]
    /// To be served now, the first first.
    var ready: [ParkedMessage] = []
    var bytes = 0
    /// What each scope and each user has of them.
    private var bytesOfScopes: [UInt32: Int] = [:]
    private var bytesOfUsers: [UInt32: Int] = [:]
    /// Together they may not take more memory than this.
    static let maxBytes = 1 << 30
    /// What one counts besides its bytes, much more than it takes: so there are 32,768 at the most, of which the kernel sends so many on its own (`configure`).
    static let overhead = 32 << 10

    mutating func take(_ unique: UInt64) -> ParkedMessage? {
        guard let message = waiting.removeValue(forKey: unique) else { return nil }
        count(message, -1)
        return message
    }

    /// False when there is no room. No scope and no user has more than what is left then, so that one alone takes half; the echo of what was written
    /// before (`isWriteBack`), which the kernel itself keeps small, is not asked for its share, because an error would lose it.
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

/// A copy of one request, freed by whoever has taken it.
struct ParkedMessage: @unchecked Sendable {
    // Safe to send: one holder at a time.
    let memory: UnsafeMutableRawPointer
    let size: Int
    /// Whose share it takes.
    let scope: UInt32
    let user: UInt32
    /// Where it is noted for the next daemon.
    private let journalEntry: JournalEntry?

    /// Copies `message`, and notes it in `journal`.
    init(_ message: UnsafeRawBufferPointer, scope: UInt32 = 0, user: UInt32 = 0, journal: RequestJournal?) {
        memory = .allocate(byteCount: message.count, alignment: 8)
        if let start = message.baseAddress { memory.copyMemory(from: start, byteCount: message.count) }
        (size, self.scope, self.user) = (message.count, scope, user)
        journalEntry = journal?.add(UnsafeRawBufferPointer(start: memory, count: size))
    }

    /// Frees it, when it is answered or noted elsewhere.
    func end() {
        journalEntry?.remove()
        memory.deallocate()
    }
}

// A request that is put aside is still unanswered for the kernel. The library has forgotten it: what it would do for an INTERRUPT is done here.
extension Session {
    public enum ParkResult: Sendable {
        /// Under this number, for `resume` or `answer`.
        case parked(UInt64)
        /// It needs neither: a revoker has answered it (EACCES), it was interrupted (EINTR), or there is no room for it (EAGAIN, or what was asked for).
        case answered(error: Int32)
    }

    /// Puts the request aside that the calling worker holds. `scope`: what it is about, for its share of memory. `isWriteBack`: see `ParkedRequests.add`.
    /// `otherwise`: what it is answered with where there is no room.
    ///
    /// Locking: `parked`, for a moment.
    public func park(_ request: consuming Request, scope: UInt32, isWriteBack: Bool = false, otherwise error: Int32 = EAGAIN) -> ParkResult {
        let (worker, raw, sequence) = (request.worker, request.raw, request.sequence)
        guard let memory = UnsafeMutableRawPointer(bitPattern: worker.pointee.message.load(ordering: .relaxed)) else {
            request.reply(error: error)
            return .answered(error: error)
        }
        let size = worker.pointee.messageSize.load(ordering: .relaxed)
        let unique = memory.load(fromByteOffset: 8, as: UInt64.self)
        // As the kernel wrote it: `Message.translateOpcode` may have given it the number of another kind.
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
        // An INTERRUPT that came before it could be found here has gone to the library; one that comes now is sent again by the kernel.
        let isInterrupted = fuse_req_interrupted(raw) != 0
        fuse_reply_none(raw)
        if isInterrupted { answer(parked: unique, error: EINTR) }
        return isInterrupted ? .answered(error: EINTR) : .parked(unique)
    }

    /// Whether a request is still put aside: neither resumed nor answered nor interrupted.
    ///
    /// Locking: `parked`, for a moment.
    public func isParked(_ unique: UInt64) -> Bool { parked.withLock { $0.waiting[unique] != nil } }

    /// Serves requests that were put aside, from the start, on workers.
    ///
    /// Locking: `parked`, for a moment.
    public func resume(_ uniques: [UInt64]) {
        let isAny = parked.withLock { parked -> Bool in
            for unique in uniques { if let message = parked.take(unique) { parked.ready.append(message) } }
            return !parked.ready.isEmpty
        }
        if isAny { startResuming() }
    }

    /// Answers a request that was put aside. Nothing happens when it no longer is.
    ///
    /// Locking: `parked`, for a moment.
    public func answer(parked unique: UInt64, error: Int32) {
        guard let message = parked.withLock({ $0.take(unique) }) else { return }
        // struct fuse_out_header. The kernel takes no answer to what it no longer waits for, and says so with ENOENT.
        var header: (UInt32, Int32, UInt64) = (16, 0 &- answerable(error), unique)
        _ = write(fuse_session_fd(pointer), &header, 16)
        message.end()
    }

    /// Whether the INTERRUPT was about a request that was put aside; it is answered then.
    func interruptParked(_ unique: UInt64) -> Bool {
        guard isParked(unique) else { return false }
        interrupted(unique)
        answer(parked: unique, error: EINTR)
        return true
    }

    // MARK: workers

    /// Has somebody serve what is to be resumed: a new worker, one who stands by, or, when there is none but `rest`, whoever the watching thread finds later.
    func startResuming(leaving rest: Int = ReaderPool.reserve) {
        if startWorker(.resuming) || readers.wakeOne(leaving: rest) { return }
        runnablePending.store(true, ordering: .relaxed)
        resumeWakeup.post()
        wakeMonitor()
    }

    /// Whether something waits to be resumed.
    var hasRunnable: Bool { parked.withLock { !$0.ready.isEmpty } }

    /// Serves what is to be resumed until there is no more, and ends then; or, `always`, whenever it is called.
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
