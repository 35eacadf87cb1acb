import GrantFUSE
import Glibc
import GrantModel
import GrantSystem

/// What somebody does to a file or directory, as it is written down.
public struct AuditRecord: Sendable {
    /// CLOCK_REALTIME, in nanoseconds since 1970.
    public let time: Int64
    public let act: AuditedAct
    /// Of an opening.
    public let access: OpenAccess?
    public let uid: UInt32
    /// The process's, and its name: see `ProcessName.ofProcess`.
    public let pid: Int32
    public let program: [UInt8]
    /// Where the file is on the host; nil when the grant's gate refused, and where the kernel cannot say it.
    public internal(set) var path: [UInt8]?
    /// Where it is renamed or linked to.
    public internal(set) var newPath: [UInt8]?
    /// For people; any text.
    public internal(set) var detail = ""
    /// The scope that it was reached through.
    public let scope: UInt32
    /// 0, or the errno that was given; nil for what is about to be done.
    public let error: Int32?

    init(_ call: AuditedCall, by caller: Caller, scope: UInt32, path: [UInt8]? = nil, error: Int32?) {
        time = Clock.realtime
        (act, access) = (call.act, call.access)
        uid = caller.uid
        (pid, program) = ProcessName.ofProcess(withThread: caller.pid)
        (self.path, self.scope, self.error) = (path, scope, error)
    }
}

/// Writes down every opening before it is answered, and every change before it is made (`-o audit`).
///
/// A worker leaves its record and waits until a thread that serves no requests has written it, with all that came meanwhile. It
/// waits inside the scope, where a revoker finds and answers it, and holds no lock. So as many records wait as there are workers, and as many of those for whom
/// nobody waits as `maxUnawaited`.
///
/// Locking: `queue` is rank 2, held for a moment.
public final class AuditTrail: Sendable {
    /// One record or result, and who waits for it.
    final class Entry: @unchecked Sendable {
        // Safe to share: `number` is set before `done` is posted, and read after.
        let content: Content
        let done = Semaphore()
        /// The log's; nil when it could not be written.
        var number: Int64?
        /// Done once it is settled, for which nobody waits then.
        let answer: (@Sendable () -> Void)?
        let isAwaited: Bool

        enum Content: Sendable {
            case record(AuditRecord)
            /// How what was written down under that number has ended.
            case result(number: Int64, error: Int32)
        }

        init(_ content: Content, isAwaited: Bool = true, answer: (@Sendable () -> Void)? = nil) {
            (self.content, self.isAwaited, self.answer) = (content, isAwaited, answer)
        }
    }

    /// What waits for a claim, a lease or for room, and may be refused in the end.
    struct PendingCall: Sendable {
        let call: AuditedCall
        let caller: Caller
        let scope: UInt32
        /// Of the file, or of the directory that it is about; nil when it cannot be told.
        let path: [UInt8]?
    }

    /// What is written together.
    public struct Batch: Sendable {
        let entries: [Entry]
        /// How many records of a scope were never written down: of what was refused.
        public let unwritten: [UInt32: Int64]
        private let trail: AuditTrail

        init(_ entries: [Entry], _ unwritten: [UInt32: Int64], _ trail: AuditTrail) {
            (self.entries, self.unwritten, self.trail) = (entries, unwritten, trail)
        }

        public var records: [AuditRecord] {
            entries.compactMap { if case .record(let record) = $0.content { record } else { nil } }
        }

        public var results: [(number: Int64, error: Int32)] {
            entries.compactMap { if case .result(let number, let error) = $0.content { (number, error) } else { nil } }
        }

        /// Lets those go on who wait. `numbers`: of the records in the log, in order; nil when nothing was written: then what is to be done is refused.
        public func settle(_ numbers: [Int64]?) {
            trail.settled(self, isWritten: numbers != nil)
            var next = numbers?.makeIterator()
            for entry in entries {
                if case .record = entry.content { entry.number = next?.next() }
                entry.answer?()
                entry.done.post()
            }
        }
    }

    private struct Queue {
        var entries: [Entry] = []
        /// Those of each scope that nobody waits for and that were not written yet.
        var unawaited: [UInt32: Int] = [:]
        var unawaitedInAll = 0
        var unwritten: [UInt32: Int64] = [:]
    }

    private let queue = Lock(Queue())
    private let wake = Semaphore()
    /// Which grant a scope is of, for as long as anybody may ask.
    private let grants = Lock<[UInt32: GrantID]>([:])

    /// Records that nobody waits for. A scope may have as many as are left.
    private static let maxUnawaited = 4096

    /// What is written down at all.
    private let kinds: AuditKinds

    public init(of kinds: AuditKinds = .all) { self.kinds = kinds }

    /// nil for what is not to be written down.
    func call(_ request: borrowing Request) -> AuditedCall? {
        guard let call = AuditedCall(request), !call.kinds.isDisjoint(with: kinds) else { return nil }
        return call
    }

    /// Waits for records, and takes all that there are. For one thread.
    public func next() -> Batch {
        while true {
            wake.waitForAny()
            let batch = queue.withLock { queue -> Batch? in
                if queue.entries.isEmpty { return nil }
                defer { (queue.entries, queue.unwritten) = ([], [:]) }
                return Batch(queue.entries, queue.unwritten, self)
            }
            if let batch { return batch }
        }
    }

    private func settled(_ batch: Batch, isWritten: Bool) {
        queue.withLock { queue in
            if !isWritten { queue.unwritten.merge(batch.unwritten) { $0 &+ $1 } }
            for case .record(let record) in batch.entries.filter({ !$0.isAwaited }).map(\.content) {
                queue.unawaitedInAll -= 1
                let left = queue.unawaited[record.scope, default: 1] - 1
                queue.unawaited[record.scope] = left > 0 ? left : nil
                if !isWritten { queue.unwritten[record.scope, default: 0] &+= 1 }
            }
        }
    }

    public func grant(of scope: UInt32) -> GrantID? { grants.withLock { $0[scope] } }
    func register(_ scope: UInt32, of grant: GrantID) { grants.withLock { $0[scope] = grant } }

    private func enqueue(_ entry: Entry) {
        queue.withLock { $0.entries.append(entry) }
        wake.post()
    }

    /// Writes it down, and waits for that. The log's number for it; nil when it could not be written: then it is not to succeed.
    func record(_ record: AuditRecord) -> Int64? {
        let entry = Entry(.record(record))
        enqueue(entry)
        entry.done.wait()
        return entry.number
    }

    /// Writes down how what has that number ended, and waits for that. Without that, nobody knows how.
    func end(_ number: Int64, error: Int32) {
        let entry = Entry(.result(number: number, error: error))
        enqueue(entry)
        entry.done.wait()
    }

    /// Writes down how something that had waited was refused, and has it answered then, by the thread that writes. Waits for nothing; where too much is to be
    /// written already, it is only counted.
    func record(_ waiting: PendingCall, error: Int32, answer: (@Sendable () -> Void)? = nil) {
        let record = AuditRecord(waiting.call, by: waiting.caller, scope: waiting.scope, path: waiting.path, error: error)
        let hasRoom = queue.withLock { queue -> Bool in
            let own = queue.unawaited[record.scope, default: 0]
            guard own < Self.maxUnawaited - queue.unawaitedInAll else {
                queue.unwritten[record.scope, default: 0] &+= 1
                return false
            }
            queue.unawaited[record.scope] = own + 1
            queue.unawaitedInAll += 1
            queue.entries.append(Entry(.record(record), isAwaited: false, answer: answer))
            return true
        }
        if hasRoom { wake.post() } else { answer?() }
    }
}
