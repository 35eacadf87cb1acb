import CLinux
import FUSEKit
import Glibc
import GrantModel
import LinuxFS

/// One opening of a file or directory, as it is written down.
public struct OpenRecord: Sendable {
    /// CLOCK_REALTIME, in nanoseconds since 1970.
    public let time: Int64
    public let uid: UInt32
    public let pid: Int32
    /// /proc/PID/comm; empty when the process had ended or is of another PID namespace.
    public let program: [UInt8]
    /// Where the file is on the host; nil when the grant's gate refused.
    public let path: [UInt8]?
    /// The scope that it was reached through.
    public let scope: UInt32
    /// 0, or the errno that was given.
    public let error: Int32
}

/// Writes down every opening before it is answered (`-o audit`).
///
/// A worker leaves its record and waits until a thread that serves no requests has written it, with all that came meanwhile. It
/// waits inside the scope, where a revoker finds and answers it, and holds no lock.
///
/// Locking: `queue` is rank 2, held for a moment.
public final class OpenAudit: Sendable {
    /// One record, and who waits for it.
    final class Entry: @unchecked Sendable {
        // Safe to share: `isWritten` is set before `done` is posted, and read after.
        let record: OpenRecord
        let done = Semaphore()
        var isWritten = false
        /// Done once it is settled, for which nobody waits then.
        let answer: (@Sendable () -> Void)?

        init(_ record: OpenRecord, answer: (@Sendable () -> Void)? = nil) { (self.record, self.answer) = (record, answer) }
    }

    /// An opening that waits for a claim, and may be refused in the end.
    struct Waiting: Sendable {
        let caller: Caller
        let scope: UInt32
        /// Of the file, or of the directory that it is to be made in; nil when it cannot be told.
        let path: [UInt8]?
    }

    /// What is written together.
    public struct Batch: Sendable {
        let entries: [Entry]
        public var records: [OpenRecord] { entries.map(\.record) }

        /// Lets those go on who wait. Not written: their openings are refused.
        public func settle(written: Bool) {
            for entry in entries {
                entry.isWritten = written
                entry.answer?()
                entry.done.post()
            }
        }
    }

    private let queue = Lock<[Entry]>([])
    private let wake = Semaphore()
    /// Which grant a scope is of, for as long as anybody may ask.
    private let grants = Lock<[UInt32: GrantID]>([:])

    public init() {}

    /// Waits for records, and takes all that there are. For one thread.
    public func next() -> Batch {
        while true {
            wake.waitForAny()
            let entries = queue.withLock { queue -> [Entry] in
                defer { queue = [] }
                return queue
            }
            if !entries.isEmpty { return Batch(entries: entries) }
        }
    }

    public func grant(of scope: UInt32) -> GrantID? { grants.withLock { $0[scope] } }
    func note(_ scope: UInt32, of grant: GrantID) { grants.withLock { $0[scope] = grant } }

    /// Writes down that `descriptor` (of the file opened, or O_PATH of the one that was not) was opened with this result, and waits for that. False
    /// when it could not be written: then the opening is not to succeed.
    func record(_ caller: Caller, scope: UInt32, descriptor: Int32?, error: Int32) -> Bool {
        let entry = Entry(
            OpenRecord(
                time: Clock.realtime, uid: caller.uid, pid: caller.pid, program: OpenAudit.program(caller.pid),
                path: descriptor.flatMap { OpenAudit.path($0) }, scope: scope, error: error))
        queue.withLock { $0.append(entry) }
        wake.post()
        entry.done.wait()
        return entry.isWritten
    }

    /// Writes down how an opening that had waited was refused, and has it answered then, by the thread that writes. Waits for nothing.
    func record(_ opening: Waiting, error: Int32, answer: (@Sendable () -> Void)? = nil) {
        let record = OpenRecord(
            time: Clock.realtime, uid: opening.caller.uid, pid: opening.caller.pid, program: OpenAudit.program(opening.caller.pid),
            path: opening.path, scope: opening.scope, error: error)
        queue.withLock { $0.append(Entry(record, answer: answer)) }
        wake.post()
    }

    private static func program(_ pid: Int32) -> [UInt8] {
        guard pid > 0, let name = try? File.contents(of: "/proc/\(pid)/comm".utf8) else { return [] }
        return name.last == 0x0A ? name.dropLast() : name
    }

    fileprivate static func path(_ descriptor: Int32) -> [UInt8]? {
        withUnsafeTemporaryAllocation(of: CChar.self, capacity: 4096) { buffer in
            let count = clinux_descriptor_path(descriptor, buffer.baseAddress!, buffer.count)
            return count > 0 ? buffer.prefix(count).map { UInt8(bitPattern: $0) } : nil
        }
    }
}

extension ViewFS {
    /// Writes an opening down where that is asked for. The error to be given instead of success: EACCES, as wherever the store fails, or 0.
    @inline(__always)
    func audit(_ caller: Caller, _ node: NodePointer, _ descriptor: Int32, error: Int32) -> Int32 {
        audit == nil ? 0 : writeDown(caller, node.pointee.scope, descriptor, error)
    }

    /// A function of its own, so that what it takes (memory, references) is not on the way of an opening that nobody asks about.
    @inline(never)
    private func writeDown(_ caller: Caller, _ scope: UInt32, _ descriptor: Int32, _ error: Int32) -> Int32 {
        audit!.record(caller, scope: scope, descriptor: descriptor, error: error) ? 0 : EACCES
    }

    /// As `waitingOpening` by node, with its descriptor.
    func waitingOpening(of descriptor: Int32, _ request: borrowing Request, scope: UInt32) -> OpenAudit.Waiting? {
        guard audit != nil, request.isOpening else { return nil }
        return OpenAudit.Waiting(caller: request.caller, scope: scope, path: OpenAudit.path(descriptor))
    }

    /// What is to be written down of an opening that is about to wait for a claim; nil for what is none, and where nothing is written down. Inside
    /// the scope.
    func waitingOpening(_ request: borrowing Request, _ id: UInt64, scope: UInt32) -> OpenAudit.Waiting? {
        guard audit != nil, request.isOpening else { return nil }
        var path: [UInt8]?
        if let node = tree.nodes.find(id) {
            let descriptor = tree.pin(node)
            if descriptor >= 0 { path = OpenAudit.path(descriptor) }
            tree.unpin(id, node)
        }
        return OpenAudit.Waiting(caller: request.caller, scope: scope, path: path)
    }
}
