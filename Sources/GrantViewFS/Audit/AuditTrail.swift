import GrantFUSE
import Glibc
import GrantModel
import GrantSystem

/// A record of one action on a file or directory.
public struct AuditRecord: Sendable {
    /// CLOCK_REALTIME, in nanoseconds since 1970.
    public let time: Int64
    public let act: AuditedAct
    /// The access of an open. It is nil for other actions.
    public let access: OpenAccess?
    public let uid: UInt32
    /// The process and its name: see `ProcessName.ofProcess`.
    public let pid: Int32
    public let program: [UInt8]
    /// The file's path on the host. It is nil if the gate refused, or if the kernel does not know
    /// it.
    public internal(set) var path: [UInt8]?
    /// The target of a rename or link.
    public internal(set) var newPath: [UInt8]?
    /// Free text for people.
    public internal(set) var detail = ""
    /// The scope through which the file was reached.
    public let scope: UInt32
    /// The errno of the reply, 0 for success. It is nil for an action that has not been done yet.
    public let error: Int32?

    init(_ call: AuditedCall, by caller: Caller, scope: UInt32, path: [UInt8]? = nil, error: Int32?) {
        time = Clock.realtime
        (act, access) = (call.act, call.access)
        uid = caller.uid
        (pid, program) = ProcessName.ofProcess(withThread: caller.pid)
        (self.path, self.scope, self.error) = (path, scope, error)
    }
}

/// Records every open before its reply, and every change before it is made (`-o audit`).
///
/// A worker enqueues its record and waits until a thread that serves no requests has written it.
/// That thread writes all queued records together. The worker waits inside the scope, where a
/// revoker finds and answers it, and holds no lock. So the queue is bounded by the number of
/// workers, plus `maxUnawaited` records without a waiter.
///
/// Locking: `queue` is rank 2, held for a moment.
public final class AuditTrail: Sendable {
    /// A queued record or result, and its waiter.
    final class Entry: @unchecked Sendable {
        // Sendable: `number` is set before `done` is posted, and read after.
        let content: Content
        let done = Semaphore()
        /// The log's number. It is nil if the record could not be written.
        var number: Int64?
        /// Called when an entry without a waiter is settled.
        let answer: (@Sendable () -> Void)?
        let isAwaited: Bool

        enum Content: Sendable {
            case record(AuditRecord)
            /// The outcome of the action recorded under that number.
            case result(number: Int64, error: Int32)
        }

        init(_ content: Content, isAwaited: Bool = true, answer: (@Sendable () -> Void)? = nil) {
            (self.content, self.isAwaited, self.answer) = (content, isAwaited, answer)
        }
    }

    /// The audited part of a parked request, which may be refused in the end.
    struct PendingCall: Sendable {
        let call: AuditedCall
        let caller: Caller
        let scope: UInt32
        /// The path of the file, or of the directory that the request works on. It is nil if it is
        /// unknown.
        let path: [UInt8]?
    }

    /// Entries that are written together.
    public struct Batch: Sendable {
        let entries: [Entry]
        /// How many records of refusals were dropped, by scope.
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

        /// Wakes the waiters.
        ///
        /// - Parameter numbers: The records' log numbers in order. nil if nothing was written.
        ///   Their actions are then refused.
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
        /// Unwritten records without a waiter, by scope.
        var unawaited: [UInt32: Int] = [:]
        var unawaitedInAll = 0
        var unwritten: [UInt32: Int64] = [:]
    }

    private let queue = Lock(Queue())
    private let wake = Semaphore()
    /// The grant of each scope, kept for as long as a record may need it.
    private let grants = Lock<[UInt32: GrantID]>([:])

    /// The limit of records without a waiter. A scope may have as many as remain.
    private static let maxUnawaited = 4096

    /// The actions that are recorded.
    private let kinds: AuditKinds

    public init(of kinds: AuditKinds = .all) { self.kinds = kinds }

    /// The audited call of a request. Returns nil if the request is not recorded.
    func call(_ request: borrowing Request) -> AuditedCall? {
        guard let call = AuditedCall(request), !call.kinds.isDisjoint(with: kinds) else { return nil }
        return call
    }

    /// Waits for entries and dequeues all of them. For one thread.
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

    /// Records an action and waits until it is written. Returns its log number.
    ///
    /// Returns nil if it could not be written. The action must then fail.
    func record(_ record: AuditRecord) -> Int64? {
        let entry = Entry(.record(record))
        enqueue(entry)
        entry.done.wait()
        return entry.number
    }

    /// Records the outcome of that action and waits until it is written.
    ///
    /// If it cannot be written, the outcome stays unknown.
    func end(_ number: Int64, error: Int32) {
        let entry = Entry(.result(number: number, error: error))
        enqueue(entry)
        entry.done.wait()
    }

    /// Records the refusal of a parked request. The writing thread then calls `answer`.
    ///
    /// Never waits: if too many are queued, the record is only counted.
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
