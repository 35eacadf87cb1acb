import CGrantFUSE
import CGrantSystem
import Glibc
import GrantSystem
import Synchronization

/// The low-level operations that a file system fills in: see `fuse_lowlevel_ops`.
public typealias OperationTable = fuse_lowlevel_ops
public typealias EntryParameters = fuse_entry_param
public typealias OpenFileInfo = fuse_file_info
public typealias BufferVector = fuse_bufvec

/// One mount: the library's session, its workers, and the loop that hands requests to them.
///
/// The loop is our own, around `fuse_session_receive_buf` and `fuse_session_process_buf`. A request that hangs keeps its worker, so
/// others read instead (`ReaderPool`), and every worker owns a slot that a revoker can inspect.
public final class Session: @unchecked Sendable {
    // Safe to share: the library's session is; the fields are fixed after `init`, or atomics.
    public let notifier: Notifier
    let pointer: OpaquePointer
    let workers: UnsafeMutablePointer<Worker>
    let workerLimit: Int
    let readers = ReaderPool()
    let ended = Atomic<Bool>(false)
    let endings = Semaphore()
    let slots: Lock<WorkerSlots>
    let parked = Lock(ParkedRequests())
    /// A crashed daemon's requests that must fail with EIO: see `answerRefused`.
    let refused = Lock<[ParkedMessage]>([])
    /// Requests are runnable and no worker could be made for them.
    let runnablePending = Atomic<Bool>(false)
    let resumeWakeup = Semaphore()
    /// No request is received or served: see `pause`.
    let isPausing = Atomic<Bool>(false)
    /// Whether the monitor is checking something.
    let isChecking = Atomic<Bool>(false)
    /// Checks what the workers do and whether parked requests can be resumed. Returns whether it must be called again soon.
    let pollWorkers: @Sendable () -> Bool
    /// Called with the number of a parked request before it is answered because it was interrupted.
    let interrupted: @Sendable (UInt64) -> Void
    let context: UnsafeMutablePointer<SessionContext>

    /// `state` is what `Request.state` returns; the caller keeps it alive as long as the session. `operations.init` is filled in
    /// here.
    /// - `interrupted`: called for each parked request before it is answered because it was interrupted; on a worker's thread,
    ///   holding no lock.
    /// - `pollWorkers`: called every millisecond by a thread that serves no requests, while workers are blocked or many, or as long
    ///   as it returns true. It must not wait for anything. `wakeMonitor` has it called when nothing else happens.
    public convenience init(
        operations: OperationTable, state: UnsafeMutableRawPointer, options: SessionOptions, mountpoint: [UInt8], workerLimit: Int,
        interrupted: @escaping @Sendable (UInt64) -> Void, pollWorkers: @escaping @Sendable () -> Bool
    ) throws(Errno) {
        // Checked here because the library reports device errors to standard error only.
        _ = try FileDescriptor.open("/dev/fuse".utf8, O_RDWR)
        try self.init(
            operations: operations, state: state, options: options, workerLimit: workerLimit, interrupted: interrupted,
            pollWorkers: pollWorkers
        ) { session throws(Errno) in
            guard withCString(mountpoint, { fuse_session_mount(session, $0) }) == 0 else {
                fuse_session_destroy(session)
                throw Errno(EIO)
            }
            guard DeviceIO.install(in: session, on: fuse_session_fd(session)) == 0 else {
                fuse_session_unmount(session)
                fuse_session_destroy(session)
                throw Errno(ENOMEM)
            }
        }
    }

    /// Continues another daemon's paused session on its `device`, which this session then owns. Throws EPROTO when this program
    /// would negotiate something else than `negotiation`: the kernel cannot be told any more.
    public convenience init(
        operations: OperationTable, state: UnsafeMutableRawPointer, options: SessionOptions, device: consuming FileDescriptor,
        negotiation: Negotiation, workerLimit: Int, interrupted: @escaping @Sendable (UInt64) -> Void,
        pollWorkers: @escaping @Sendable () -> Bool
    ) throws(Errno) {
        let number = device.release()
        try self.init(
            operations: operations, state: state, options: options, workerLimit: workerLimit, interrupted: interrupted,
            pollWorkers: pollWorkers
        ) { session throws(Errno) in
            guard DeviceIO.install(in: session, on: number) == 0 else { throw Errno(ENOMEM) }
        }
        context.pointee.isReplaying = true
        let message = UnsafeMutableRawPointer.allocate(byteCount: Worker.bufferSize, alignment: 16)
        negotiation.request.withUnsafeBytes { message.copyMemory(from: $0.baseAddress!, byteCount: min($0.count, Worker.bufferSize)) }
        serve(message: message, count: negotiation.request.count)
        message.deallocate()
        clinux_set_worker(nil)
        context.pointee.isReplaying = false
        workers.pointee.counts[Int(truncatingIfNeeded: Message.Opcode.initialize)].store(0, ordering: .relaxed)
        guard context.pointee.negotiation == negotiation else { throw Errno(EPROTO) }
    }

    /// A session without a mount: requests come from `serve(message:count:)`, each reply is one writev(2) to `exchange`.
    package convenience init(
        operations: OperationTable, state: UnsafeMutableRawPointer, options: SessionOptions, exchange: Int32, workerLimit: Int,
        interrupted: @escaping @Sendable (UInt64) -> Void
    ) throws(Errno) {
        try self.init(
            operations: operations, state: state, options: options, workerLimit: workerLimit, interrupted: interrupted,
            pollWorkers: { false }
        ) { session throws(Errno) in
            guard DeviceIO.install(in: session, on: exchange) == 0 else { throw Errno(ENOMEM) }
        }
        guard makeRoom(0) else { throw Errno(ENOMEM) }
    }

    /// `attach`: connects the library's session to the kernel or its substitute; what it throws is passed on.
    private init(
        operations: OperationTable, state: UnsafeMutableRawPointer, options: SessionOptions, workerLimit: Int,
        interrupted: @escaping @Sendable (UInt64) -> Void, pollWorkers: @escaping @Sendable () -> Bool,
        attach: (OpaquePointer) throws(Errno) -> Void
    ) throws(Errno) {
        self.interrupted = interrupted
        self.pollWorkers = pollWorkers
        self.workerLimit = workerLimit
        let context = UnsafeMutablePointer<SessionContext>.allocate(capacity: 1)
        context.initialize(to: SessionContext(options: options, state: state))
        self.context = context
        var table = operations
        table.`init` = { context, connection in
            let context = context!.assumingMemoryBound(to: SessionContext.self)
            context.pointee.kernelProtocol = connection!.pointee.proto_minor
            configure(connection!, as: context.pointee.options)
        }
        let source = options.source.map { $0 == "," || $0 == "\\" ? "\\\($0)" : "\($0)" }.joined()
        let words = (["subtype=grantfs", "fsname=\(source)"] + options.mountWords).joined(separator: ",")
        var arguments: [UnsafeMutablePointer<CChar>?] = [strdup("grantfs"), strdup("-o"), strdup(words), nil]
        defer { for argument in arguments { free(argument) } }
        let session = arguments.withUnsafeMutableBufferPointer { buffer -> OpaquePointer? in
            var args = fuse_args(argc: 3, argv: buffer.baseAddress, allocated: 0)
            defer { fuse_opt_free_args(&args) }
            return cfuse3_session_new(&args, &table, MemoryLayout<OperationTable>.size, context)
        }
        guard let session else { throw Errno(EINVAL) }
        try attach(session)
        context.pointee.descriptor = fuse_session_fd(session)
        pointer = session
        notifier = Notifier(session: session)
        workers = .allocate(capacity: workerLimit)
        // One mapping for all buffers; `makeRoom` enables a worker's part. Where the kernel promises no more memory than there is
        // (vm.overcommit_memory=2), writable memory counts whether it is touched or not.
        guard let buffers = mmap(nil, workerLimit * Worker.bufferSize, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), buffers != MAP_FAILED
        else { throw Errno(ENOMEM) }
        let counts = zeroed(workerLimit * RequestCounts.width)
        let timings = zeroed(workerLimit * RequestCounts.kinds * RequestTimings.width)
        for slot in 0..<workerLimit {
            (workers + slot).initialize(
                to: Worker(
                    slot: slot, buffer: buffers + slot * Worker.bufferSize, counts: counts + slot * RequestCounts.width,
                    timings: timings + slot * RequestCounts.kinds * RequestTimings.width, context: context))
        }
        slots = Lock(WorkerSlots(limit: workerLimit))
    }

    /// Starts the first workers and the monitor. Returns at once; `waitUntilEnded` waits. Without a thread for the monitor the
    /// mount is removed again: throws EAGAIN.
    public func start() throws(Errno) {
        Session.surviveTraps()
        do throws(Errno) {
            try WorkerThread.start("grantfs-readers") { self.monitorReaders() }.detach()
        } catch {
            fuse_session_unmount(pointer)
            throw error
        }
        for _ in 0..<ReaderPool.minimum { startWorker() }
        // Some in advance, for when no threads can be made.
        for _ in 0..<ReaderPool.reserve { startWorker(.standby) }
        for _ in 0..<ReaderPool.reserveForResumed { startWorker(.resumingAlways) }
    }

    /// Answers the request that the worker of `slot` holds, if it is unanswered: with `error`, or with success when it is a
    /// close(2). Asks `stillHeld` between reading and answering, so that a newer request is left alone. Returns whether it
    /// answered.
    public func answer(slot: Int, error: Int32, stillHeld: () -> Bool) -> Bool {
        guard slot < workerLimit else { return false }
        let worker = workers + slot
        let seen = worker.pointee.answer.load(ordering: .sequentiallyConsistent)
        guard seen & 1 == 1, stillHeld() else { return false }
        let error = worker.pointee.isClosing.load(ordering: .acquiring) ? 0 : error
        guard worker.pointee.claim(seen >> 1) else { return false }
        let request = fuse_req_t(bitPattern: worker.pointee.request.load(ordering: .relaxed))
        fuse_reply_err(request, answerable(error))
        return true
    }

    /// The user of the worker's current or last request.
    public func user(ofSlot slot: Int) -> UInt32 { slot < workerLimit ? workers[slot].user.load(ordering: .relaxed) : 0 }

    /// The thread of the worker (gettid(2)); 0 when there is none.
    public func thread(ofSlot slot: Int) -> Int32 { slot < workerLimit ? workers[slot].thread.load(ordering: .relaxed) : 0 }

    /// Requests taken so far, modulo 2³².
    public var requestsTaken: UInt32 { readers.snapshot.taken }

    public var hasEnded: Bool { ended.load(ordering: .acquiring) }

    /// Waits until the kernel has ended the connection. For one thread.
    public func waitUntilEnded() {
        while !hasEnded { endings.wait() }
    }
}

/// Zeroed counters, never freed. calloc: the kernel provides untouched zero pages, and an atomic counter begins as zero.
private func zeroed(_ count: Int) -> UnsafeMutablePointer<Atomic<UInt64>> {
    calloc(count, MemoryLayout<Atomic<UInt64>>.stride)!.bindMemory(to: Atomic<UInt64>.self, capacity: count)
}

/// What the library passes to every operation: our settings, and the file system.
struct SessionContext {
    let options: SessionOptions
    let state: UnsafeMutableRawPointer
    /// The kernel's offer in FUSE_INIT, which is answered on the thread that wrote this.
    var offered: UInt64 = 0
    /// Where requests come from and replies go. Written once, before there are workers.
    var descriptor: Int32 = -1
    /// Whether the kernel can resend unanswered requests (FUSE_NOTIFY_RESEND). Written with `offered`; false before.
    var canResend = false
    /// The journal of parked requests, where the kernel cannot resend and there will be a next daemon. Written with `canResend`.
    var journal: RequestJournal?
    /// The FUSE_INIT exchange as received and answered; written on the same thread.
    var negotiation = Negotiation()
    /// Replies stay here: the kernel has had its answer.
    var isReplaying = false
    /// The protocol's minor version; written with the reply to FUSE_INIT, before any other request.
    var kernelProtocol: UInt32 = 0

    /// Whether files opened past the cache can be mapped shared.
    var mapsDirectly: Bool { options.mapsDirectly && offered & DeviceIO.mapsDirectly != 0 }
}

/// Answers FUSE_INIT: requests what grantfs needs and nothing else, whatever the library's defaults are.
private func configure(_ connection: UnsafeMutablePointer<fuse_conn_info>, as options: SessionOptions) {
    var wanted =
        FUSE_CAP_ASYNC_READ | FUSE_CAP_PARALLEL_DIROPS
        | FUSE_CAP_READDIRPLUS | FUSE_CAP_POSIX_ACL | FUSE_CAP_DONT_MASK | FUSE_CAP_CACHE_SYMLINKS
        | FUSE_CAP_EXPIRE_ONLY | FUSE_CAP_IOCTL_DIR
    // FUSE_CAP_READDIRPLUS_AUTO stays off: with it the kernel asks for attributes with the first part of a listing only, unless a lookup
    // came in between; the daemon knows better who will want them, and may leave them out.
    // FUSE_CAP_ASYNC_DIO stays off: with it the kernel drops what it has cached of a range when an asynchronous write past the cache
    // begins, and not when it has ended (fs/fuse/file.c, fuse_direct_IO and fuse_aio_complete), so whoever reads meanwhile puts old pages
    // there that stay. FUSE_CAP_EXPORT_SUPPORT stays off: a handle must not reach a node that the kernel has forgotten.
    // FUSE_CAP_ATOMIC_O_TRUNC stays off: truncation comes as SETATTR, with everything that says how. So does FUSE_CAP_HANDLE_KILLPRIV,
    // which leaves out who may keep set-id bits; its second version is asked for in `DeviceIO`.
    if options.forwardsLocks { wanted |= FUSE_CAP_POSIX_LOCKS | FUSE_CAP_FLOCK_LOCKS }
    if options.writeBack { wanted |= FUSE_CAP_WRITEBACK_CACHE }
    if options.checkData { wanted |= FUSE_CAP_AUTO_INVAL_DATA }
    cfuse3_want(connection, UInt64(truncatingIfNeeded: wanted))
    connection.pointee.max_write = 1 << 20
    connection.pointee.max_readahead = 1 << 20
    // Hung readaheads of one grant must not stop all others (64 did), so as many as can be parked here: no grant has more than half
    // of them. The kernel gives an unprivileged mount fewer when memory is small (fs/fuse/inode.c, max_user_bgreq).
    connection.pointee.max_background = UInt32(clamping: ParkedRequests.maxBytes / ParkedRequests.overhead)
    connection.pointee.congestion_threshold = connection.pointee.max_background / 4 * 3
    connection.pointee.time_gran = 1
}
