import CGrantFUSE
import CGrantSystem
import Glibc
import GrantSystem

/// A journal of parked requests in memory that outlives the daemon.
///
/// It is for the next daemon on kernels that cannot resend requests (before Linux 6.9). Workers
/// journal the requests that they receive themselves (`Session.receive`).
final class RequestJournal: @unchecked Sendable {
    // Sendable: an entry belongs to the thread that took it.
    private let page: UnsafeMutablePointer<clinux_supervised>
    private let places = Lock(Places())

    private struct Places {
        var next: UInt32 = 0
        var free: [UInt32] = []
    }

    /// `page`: mapped permanently.
    init(_ page: UnsafeMutablePointer<clinux_supervised>) {
        self.page = page
        page.pointee.journals_requests = 1
    }

    /// Adds a request as the kernel wrote it. Returns nil if the journal is full.
    ///
    /// A full journal is recorded, and no other daemon can take over then.
    ///
    /// Locking: takes a lock of its own for a moment.
    func add(_ message: UnsafeRawBufferPointer) -> JournalEntry? {
        let place = places.withLock { places -> UInt32? in
            if let place = places.free.popLast() { return place }
            guard places.next < UInt32(truncatingIfNeeded: CLINUX_PARKED) else { return nil }
            places.next += 1
            page.pointee.journal_end = places.next
            return places.next - 1
        }
        guard let place, let start = message.baseAddress, message.count > 0 else {
            page.pointee.journal_overflowed = 1
            return nil
        }
        clinux_journal_park(page, place, start, message.count)
        return JournalEntry(journal: .passUnretained(self), place: place)
    }

    fileprivate func remove(_ place: UInt32) {
        clinux_journal_unpark(page, place)
        places.withLock { $0.free.append(place) }
    }
}

/// An entry of the journal. Remove it once.
///
/// Remove it when its request is answered or journaled elsewhere, and not before. Otherwise the
/// request could stay unanswered after a crash.
struct JournalEntry: @unchecked Sendable {
    // Sendable: the journal lives as long as its session, which is never freed.
    fileprivate let journal: Unmanaged<RequestJournal>
    fileprivate let place: UInt32

    func remove() { journal._withUnsafeGuaranteedRef { $0.remove(place) } }
}

extension Worker {
    /// Journals the worker's request, which is about to be parked. nil without a journal.
    func journalParked() -> JournalEntry? {
        guard let journal, let memory = UnsafeRawPointer(bitPattern: message.load(ordering: .relaxed)) else { return nil }
        return journal.add(UnsafeRawBufferPointer(start: memory, count: messageSize.load(ordering: .relaxed)))
    }
}

extension Session {
    /// Does the same as `fuse_session_receive_buf`. A request is not lost by the daemon's death.
    ///
    /// Journals the request if the kernel cannot resend, or may turn out to be unable to.
    @inline(__always)
    func receive(_ worker: UnsafeMutablePointer<Worker>, _ buffer: inout fuse_buf) -> Int32 {
        guard let record = worker.pointee.record else { return fuse_session_receive_buf(pointer, &buffer) }
        if buffer.mem == nil { buffer.mem = clinux_receive_buffer(record, Worker.bufferSize) }
        guard let memory = buffer.mem else { return -ENOMEM }
        return canResend ? fuse_session_receive_buf(pointer, &buffer) : receiveJournaled(record, memory, &buffer)
    }

    @inline(never)
    private func receiveJournaled(
        _ record: UnsafeMutablePointer<clinux_request>, _ memory: UnsafeMutableRawPointer, _ buffer: inout fuse_buf
    ) -> Int32 {
        while true {
            let received = clinux_receive_journaled(device, record, memory, Worker.bufferSize)
            switch received {
            // The request was interrupted before it was received (fs/fuse/dev.c).
            case -ENOENT: continue
            // The connection has ended.
            case -ENODEV:
                fuse_session_exit(pointer)
                return 0
            default:
                buffer.size = Int(truncatingIfNeeded: max(0, received))
                return received
            }
        }
    }
}

/// Requests that a crashed daemon received and did not answer.
///
/// Used on a kernel that cannot resend.
public enum CrashedRequests {
    /// Returns the requests to serve again, and those to refuse (`Session.takeOver(refused:)`).
    ///
    /// A refused request may have been carried out and must not be repeated, or was journaled only
    /// in part.
    ///
    /// - Parameters:
    ///   - page: The crashed daemon's page.
    ///   - device: Its /dev/fuse.
    /// - Throws: EOVERFLOW if the journal is incomplete.
    public static func take(_ page: UnsafeMutablePointer<clinux_supervised>, device: Int32) throws(Errno) -> (
        served: [[UInt8]], refused: [[UInt8]]
    ) {
        guard page.pointee.journals_requests != 0 else { return ([], []) }
        if page.pointee.journal_overflowed != 0 { throw Errno(EOVERFLOW) }
        let suspects = Supervisor.suspects(after: page)
        var seen = Set<UInt64>()
        var (messages, refused): ([[UInt8]], [[UInt8]]) = ([], [])
        for place in 0..<UInt32(truncatingIfNeeded: CLINUX_SUPERVISED_WORKERS)
            + min(page.pointee.journal_end, UInt32(truncatingIfNeeded: CLINUX_PARKED))
        {
            var size = 0
            guard let bytes = clinux_journaled_request(page, place, &size) else { continue }
            let noted = UnsafeRawBufferPointer(start: bytes, count: min(size, Int(truncatingIfNeeded: CLINUX_JOURNALED_BYTES)))
            let message = Message(noted)
            guard message.needsReply, seen.insert(message.unique).inserted, isWaitedFor(message.unique, device) else { continue }
            let suspect = suspects.first { $0.unique == message.unique }
            // struct fuse_in_header begins with the full length, even if less was journaled.
            let isComplete = Int(clamping: message.number(at: 0)) == noted.count
            if isComplete, suspect.map({ Message.mayBeReplayed($0) }) ?? true {
                messages.append(Array(noted))
            } else {
                refused.append(Array(noted))
            }
        }
        return (messages.sorted { Message.unique(of: $0) < Message.unique(of: $1) }, refused)
    }

    /// Whether the kernel still waits for a reply.
    ///
    /// This process replies that an INTERRUPT of the request came too early. The kernel returns
    /// ENOENT if there is no such request. Otherwise it sends the INTERRUPT again, if there was one
    /// (fs/fuse/dev.c, fuse_dev_do_write). FUSE_INT_REQ_BIT is 1.
    private static func isWaitedFor(_ unique: UInt64, _ device: Int32) -> Bool {
        var header: (UInt32, Int32, UInt64) = (16, -EAGAIN, unique | 1)
        return write(device, &header, 16) == 16 || errno != ENOENT
    }
}
