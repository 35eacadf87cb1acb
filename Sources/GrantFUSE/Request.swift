import CGrantFUSE
import CGrantSystem
import Glibc
import GrantSystem

/// A node as the kernel names it: fuse_ino_t.
public struct NodeID: Hashable, Sendable {
    public let rawValue: UInt64
    @inline(__always) public init(_ rawValue: UInt64) { self.rawValue = rawValue }
    /// The root of the mount, FUSE_ROOT_ID.
    public static let root = NodeID(1)
    /// Of a directory that exists in the mount alone: the root, and those that lead from there to grants. Tables of nodes never give out their first 16 indices, which
    /// are the lower half of an id.
    @inline(__always) public var isVirtual: Bool { UInt32(truncatingIfNeeded: rawValue) < 16 }
}

/// An error number as the kernel takes it in an answer, or 0. It takes none of its own, 512 and above, which some filesystems let out (ENOTSUPP, 524): it
/// would refuse the whole answer (fs/fuse/dev.c, fuse_dev_do_write), and the caller would wait for ever.
@inline(__always)
func answerable(_ error: Int32) -> Int32 { error >= 0 && error < 512 ? error : EIO }

/// A request that must be answered exactly once: every `reply` consumes it, and one that is dropped answers EIO and says so.
///
/// The revoker may answer in the worker's place (`Session.answer`). A worker that comes second sends nothing; its `reply` returns
/// false, and what the reply would have handed out (a lookup count, a descriptor) must be taken back. From `begin` on the worker
/// reads nothing of the request itself, because whoever answers frees it.
public struct Request: ~Copyable {
    public let worker: UnsafeMutablePointer<Worker>
    public let caller: Caller
    /// Whether set-id bits of the file are to be cleared by this change.
    public let killsSetID: Bool
    let raw: fuse_req_t
    let sequence: UInt64

    /// Takes a request from the library on the worker's thread.
    @inline(__always)
    public init(_ raw: fuse_req_t) {
        let worker = clinux_worker()!.assumingMemoryBound(to: Worker.self)
        let context = fuse_req_ctx(raw)!
        self.raw = raw
        self.worker = worker
        caller = Caller(uid: context.pointee.uid, gid: context.pointee.gid, pid: context.pointee.pid, umask: context.pointee.umask)
        worker.pointee.user.store(context.pointee.uid, ordering: .relaxed)
        killsSetID = worker.pointee.killsSetID.load(ordering: .relaxed)
        sequence = (worker.pointee.answer.load(ordering: .relaxed) >> 1) &+ 1
        worker.pointee.request.store(UInt(bitPattern: UnsafeRawPointer(raw)), ordering: .relaxed)
        worker.pointee.answer.store(sequence << 1 | 1, ordering: .sequentiallyConsistent)
    }

    deinit {
        guard worker.pointee.claim(sequence) else { return }
        SystemLog.write(.error, "a request was dropped without an answer")
        fuse_reply_err(raw, EIO)
    }

    /// The kernel's number for it, as `Session.park` gives it; 0 for what is no longer there.
    public var unique: UInt64 {
        let message = UnsafeRawPointer(bitPattern: worker.pointee.message.load(ordering: .relaxed))
        return message?.load(fromByteOffset: 8, as: UInt64.self) ?? 0
    }

    /// A copy of it as the kernel wrote it. Not for the way of every request.
    public var message: [UInt8] {
        guard let memory = UnsafeRawPointer(bitPattern: worker.pointee.message.load(ordering: .relaxed)) else { return [] }
        return Array(UnsafeRawBufferPointer(start: memory, count: worker.pointee.messageSize.load(ordering: .relaxed)))
    }

    /// What `Session` was given as its file system.
    @inline(__always)
    public static func state<T: AnyObject>(of raw: fuse_req_t, as type: T.Type) -> Unmanaged<T> {
        Unmanaged.fromOpaque(fuse_req_userdata(raw)!.assumingMemoryBound(to: SessionContext.self).pointee.state)
    }

    // MARK: replies

    /// Runs `send` with the request if it is still ours. Returns whether the kernel took the answer; when it did not (the
    /// revoker was first, or the caller was interrupted) the caller takes back what it handed out.
    @inline(__always)
    private consuming func send(_ send: (fuse_req_t) -> Int32) -> Bool {
        let (worker, raw, sequence) = (worker, raw, sequence)
        discard self
        guard worker.pointee.claim(sequence) else { return false }
        return send(raw) == 0
    }

    /// An error (positive errno), or 0 for success without a result.
    @inline(__always) @discardableResult
    public consuming func reply(error: Int32) -> Bool { send { fuse_reply_err($0, answerable(error)) } }

    /// The error in a negative result of a system call.
    @inline(__always) @discardableResult
    public consuming func reply(failure result: Int32) -> Bool { reply(error: Errno.number(of: result)) }
    @inline(__always) @discardableResult
    public consuming func reply(failure result: Int) -> Bool { reply(error: Errno.number(of: result)) }
    @inline(__always) @discardableResult
    public consuming func reply(failure result: Int64) -> Bool { reply(error: Errno.number(of: result)) }

    @inline(__always)
    public consuming func reply(entry: UnsafePointer<fuse_entry_param>) -> Bool { send { fuse_reply_entry($0, entry) } }

    @inline(__always)
    public consuming func reply(entry: UnsafePointer<fuse_entry_param>, file: UnsafePointer<fuse_file_info>) -> Bool {
        send { fuse_reply_create($0, entry, file) }
    }

    @inline(__always) @discardableResult
    public consuming func reply(attributes: UnsafePointer<stat>, timeout: Double) -> Bool {
        send { fuse_reply_attr($0, attributes, timeout) }
    }

    @inline(__always)
    public consuming func reply(file: UnsafePointer<fuse_file_info>) -> Bool { send { fuse_reply_open($0, file) } }

    @inline(__always) @discardableResult
    public consuming func reply(bytes: UnsafeRawPointer, count: Int) -> Bool {
        send { fuse_reply_buf($0, bytes.assumingMemoryBound(to: CChar.self), count) }
    }

    /// `text` ends with a NUL.
    @inline(__always) @discardableResult
    public consuming func reply(link text: UnsafePointer<CChar>) -> Bool { send { fuse_reply_readlink($0, text) } }

    @inline(__always) @discardableResult
    public consuming func reply(written count: Int) -> Bool { send { fuse_reply_write($0, count) } }

    @inline(__always) @discardableResult
    public consuming func reply(xattrSize size: Int) -> Bool { send { fuse_reply_xattr($0, size) } }

    @inline(__always) @discardableResult
    public consuming func reply(offset: Int64) -> Bool { send { fuse_reply_lseek($0, off_t(truncatingIfNeeded: offset)) } }

    /// The result 0 of an ioctl(2), and what it gives back.
    @discardableResult
    public consuming func reply(control bytes: UnsafeRawPointer?, count: Int) -> Bool { send { fuse_reply_ioctl($0, 0, bytes, count) } }

    @discardableResult
    public consuming func reply(filesystem: UnsafePointer<statvfs>) -> Bool { send { fuse_reply_statfs($0, filesystem) } }

    @discardableResult
    public consuming func reply(lock: UnsafePointer<flock>) -> Bool { send { fuse_reply_lock($0, lock) } }

    /// The answer to what wants none (FORGET).
    public consuming func replyNothing() {
        _ = send {
            fuse_reply_none($0)
            return 0
        }
    }

    /// Lets go of it without an answer: whoever calls this sees to that.
    consuming func abandon() { discard self }

    /// Takes the request off its worker, to be answered later by somebody else. nil when the revoker has answered it.
    public consuming func detach() -> DetachedRequest? {
        let (worker, raw, sequence, caller) = (worker, raw, sequence, caller)
        // Before anybody can answer it.
        let journalEntry = worker.pointee.journalParked()
        discard self
        if worker.pointee.claim(sequence) { return DetachedRequest(raw: raw, caller: caller, journalEntry: journalEntry) }
        journalEntry?.remove()
        return nil
    }
}

/// A request that waits without a worker. Answered exactly once, by its holder.
public struct DetachedRequest: ~Copyable, @unchecked Sendable {
    // Safe to send: libfuse allows a reply from any thread, and there is one holder.
    let raw: fuse_req_t
    public let caller: Caller
    /// Where it is noted for the next daemon, until it is answered.
    private let journalEntry: JournalEntry?

    init(raw: fuse_req_t, caller: Caller, journalEntry: JournalEntry?) {
        (self.raw, self.caller, self.journalEntry) = (raw, caller, journalEntry)
    }

    deinit {
        fuse_reply_err(raw, EIO)
        journalEntry?.remove()
    }

    public consuming func reply(error: Int32) {
        let (raw, journalEntry) = (raw, journalEntry)
        discard self
        fuse_reply_err(raw, answerable(error))
        journalEntry?.remove()
    }

    /// Calls `function(request, data)` when the caller is interrupted; at once when it has been. Not called after the reply.
    public borrowing func onInterrupt(_ function: @escaping fuse_interrupt_func_t, data: UnsafeMutableRawPointer?) {
        fuse_req_interrupt_func(raw, function, data)
    }
}
