import CGrantFUSE
import CGrantSystem
import Glibc
import GrantSystem

/// A node id of the kernel: fuse_ino_t.
public struct NodeID: Hashable, Sendable {
    public let rawValue: UInt64
    @inline(__always) public init(_ rawValue: UInt64) { self.rawValue = rawValue }
    /// The root of the mount, FUSE_ROOT_ID.
    public static let root = NodeID(1)
    /// Whether it is a directory that exists only in the mount.
    ///
    /// These are the root, and the directories between it and grants. Node tables never use the
    /// first 16 indices, which are the lower half of an id.
    @inline(__always) public var isVirtual: Bool { UInt32(truncatingIfNeeded: rawValue) < 16 }
}

/// The error number for a reply.
///
/// The kernel takes none of its internal ones (512 and above), which some filesystems leak
/// (ENOTSUPP, 524). It would reject the whole reply (fs/fuse/dev.c, fuse_dev_do_write), and the
/// caller would wait forever.
@inline(__always)
func answerable(_ error: Int32) -> Int32 { error >= 0 && error < 512 ? error : EIO }

/// A request that is answered exactly once.
///
/// Every `reply` consumes it. A request that is dropped is answered with EIO, and that is logged.
///
/// A revoker may answer in place of the worker (`Session.answer`). The worker's later `reply` then
/// sends nothing and returns false. The worker undoes everything that the reply would have handed
/// out (a lookup count, a descriptor). After `begin` the worker reads nothing of the library's
/// request, because the answering thread frees it.
public struct Request: ~Copyable {
    public let worker: UnsafeMutablePointer<Worker>
    public let caller: Caller
    /// Whether this change must clear the file's set-id bits.
    public let killsSetID: Bool
    let raw: fuse_req_t
    let sequence: UInt64

    /// Takes a request from the library, on the worker's thread.
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

    /// The kernel's number for it, as `Session.park` returns it. 0 if it is gone.
    public var unique: UInt64 {
        let message = UnsafeRawPointer(bitPattern: worker.pointee.message.load(ordering: .relaxed))
        return message?.load(fromByteOffset: 8, as: UInt64.self) ?? 0
    }

    /// A copy of the raw request. Allocates: not for the hot path.
    public var message: [UInt8] {
        guard let memory = UnsafeRawPointer(bitPattern: worker.pointee.message.load(ordering: .relaxed)) else { return [] }
        return Array(UnsafeRawBufferPointer(start: memory, count: worker.pointee.messageSize.load(ordering: .relaxed)))
    }

    /// The file system object that `Session` was given.
    @inline(__always)
    public static func state<T: AnyObject>(of raw: fuse_req_t, as type: T.Type) -> Unmanaged<T> {
        Unmanaged.fromOpaque(fuse_req_userdata(raw)!.assumingMemoryBound(to: SessionContext.self).pointee.state)
    }

    // MARK: replies

    /// Runs `send` if the request was not answered yet.
    ///
    /// Returns whether the kernel took the reply. If a revoker was first or the caller was
    /// interrupted, it did not. The calling function then undoes everything that it handed out.
    @inline(__always)
    private consuming func send(_ send: (fuse_req_t) -> Int32) -> Bool {
        let (worker, raw, sequence) = (worker, raw, sequence)
        discard self
        guard worker.pointee.claim(sequence) else { return false }
        return send(raw) == 0
    }

    /// Replies with an error (positive errno), or with 0 for success without a result.
    @inline(__always) @discardableResult
    public consuming func reply(error: Int32) -> Bool { send { fuse_reply_err($0, answerable(error)) } }

    /// Replies with the error in a negative result of a system call.
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

    /// Replies to ioctl(2) with result 0 and this output.
    @discardableResult
    public consuming func reply(control bytes: UnsafeRawPointer?, count: Int) -> Bool { send { fuse_reply_ioctl($0, 0, bytes, count) } }

    @discardableResult
    public consuming func reply(filesystem: UnsafePointer<statvfs>) -> Bool { send { fuse_reply_statfs($0, filesystem) } }

    @discardableResult
    public consuming func reply(lock: UnsafePointer<flock>) -> Bool { send { fuse_reply_lock($0, lock) } }

    /// Completes a request that expects no reply (FORGET).
    public consuming func replyNothing() {
        _ = send {
            fuse_reply_none($0)
            return 0
        }
    }

    /// Gives up the request. The calling function must answer it by other means.
    consuming func abandon() { discard self }

    /// Detaches the request from its worker, for a later reply by another thread.
    ///
    /// Returns nil if a revoker has answered it.
    public consuming func detach() -> DetachedRequest? {
        let (worker, raw, sequence, caller) = (worker, raw, sequence, caller)
        // Journaled before any other thread can answer it.
        let journalEntry = worker.pointee.journalParked()
        discard self
        if worker.pointee.claim(sequence) { return DetachedRequest(raw: raw, caller: caller, journalEntry: journalEntry) }
        journalEntry?.remove()
        return nil
    }
}

/// A request that waits without a worker. Its holder answers it exactly once.
public struct DetachedRequest: ~Copyable, @unchecked Sendable {
    // Sendable: libfuse allows a reply from any thread, and there is one holder.
    let raw: fuse_req_t
    public let caller: Caller
    /// Its entry in the journal for the next daemon, until it is answered.
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

    /// Calls `function(request, data)` when the caller is interrupted.
    ///
    /// Calls it immediately if the caller already was interrupted. Never calls it after the reply.
    public borrowing func onInterrupt(_ function: @escaping fuse_interrupt_func_t, data: UnsafeMutableRawPointer?) {
        fuse_req_interrupt_func(raw, function, data)
    }
}
