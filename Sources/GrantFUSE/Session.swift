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

/// One mount: the library's session, its workers, and the loop that gives them requests.
///
/// The loop is our own, around `fuse_session_receive_buf` and `fuse_session_process_buf`. A request
/// that hangs keeps its worker, so others read instead (`ReaderPool`), and every worker owns a slot
/// that a revoker can inspect.
public final class Session: @unchecked Sendable {
    // Sendable: the library's session is. The fields are fixed after `init`, locked, or atomics.
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
    /// Whether the monitor is checking the workers.
    let isChecking = Atomic<Bool>(false)
    /// Checks the workers, and whether parked requests can be resumed.
    ///
    /// Returns whether it must be called again soon.
    let pollWorkers: @Sendable () -> Bool
    /// Called with the number of a parked request that was interrupted. Returns whether the request ends by that.
    let interrupted: @Sendable (UInt64) -> Bool
    let context: UnsafeMutablePointer<SessionContext>

    /// Mounts a file system.
    ///
    /// - Parameters:
    ///   - operations: Its `init` is filled in here.
    ///   - state: The result of `Request.state`. The caller keeps it alive as long as the session.
    ///   - interrupted: Called for each parked request that was interrupted, before the reply. It
    ///     runs on a worker's thread, which holds no lock.
    ///   - pollWorkers: Called every millisecond by a thread that serves no requests, while workers
    ///     are blocked or many, or as long as it returns true. It must not wait. `wakeMonitor`
    ///     requests a call.
    public convenience init(
        operations: OperationTable, state: UnsafeMutableRawPointer, options: SessionOptions, mountpoint: [UInt8], workerLimit: Int,
        interrupted: @escaping @Sendable (UInt64) -> Bool, pollWorkers: @escaping @Sendable () -> Bool
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

    /// Continues another daemon's paused session on its `device`, which this session then owns.
    ///
    /// - Throws: EPROTO if this program would negotiate other features than `negotiation`, which
    ///   the kernel no longer accepts.
    public convenience init(
        operations: OperationTable, state: UnsafeMutableRawPointer, options: SessionOptions, device: consuming FileDescriptor,
        negotiation: Negotiation, workerLimit: Int, interrupted: @escaping @Sendable (UInt64) -> Bool,
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

    /// Makes a session without a mount.
    ///
    /// Requests come from `serve(message:count:)`, and each reply is one writev(2) to `exchange`.
    package convenience init(
        operations: OperationTable, state: UnsafeMutableRawPointer, options: SessionOptions, exchange: Int32, workerLimit: Int,
        interrupted: @escaping @Sendable (UInt64) -> Bool
    ) throws(Errno) {
        try self.init(
            operations: operations, state: state, options: options, workerLimit: workerLimit, interrupted: interrupted,
            pollWorkers: { false }
        ) { session throws(Errno) in
            guard DeviceIO.install(in: session, on: exchange) == 0 else { throw Errno(ENOMEM) }
        }
        guard makeRoom(0) else { throw Errno(ENOMEM) }
    }

    /// `attach`: connects the library's session to the kernel or its substitute. Its errors are
    /// passed on.
    private init(
        operations: OperationTable, state: UnsafeMutableRawPointer, options: SessionOptions, workerLimit: Int,
        interrupted: @escaping @Sendable (UInt64) -> Bool, pollWorkers: @escaping @Sendable () -> Bool,
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
        // One mapping for all buffers, of which `makeRoom` enables a worker's part: under
        // vm.overcommit_memory=2 writable memory counts even if it is untouched.
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

    /// Starts the first workers and the monitor. `waitUntilEnded` waits.
    ///
    /// - Throws: EAGAIN if there is no thread for the monitor. The mount is then removed again.
    public func start() throws(Errno) {
        Session.surviveTraps()
        do throws(Errno) {
            try WorkerThread.start("grantfs-readers") { self.monitorReaders() }.detach()
        } catch {
            fuse_session_unmount(pointer)
            throw error
        }
        for _ in 0..<ReaderPool.minimum { startWorker() }
        // Some in advance, in case no threads can be made later.
        for _ in 0..<ReaderPool.reserve { startWorker(.standby) }
        for _ in 0..<ReaderPool.reserveForResumed { startWorker(.resumingAlways) }
    }

    /// Answers the request that the worker of `slot` holds, if it is unanswered.
    ///
    /// The reply is `error`, or success for a close(2). Calls `stillHeld` between reading and
    /// answering, so that a newer request is not answered. Returns whether it answered.
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

    /// The thread of the worker (gettid(2)). 0 if there is none.
    public func thread(ofSlot slot: Int) -> Int32 { slot < workerLimit ? workers[slot].thread.load(ordering: .relaxed) : 0 }

    /// Requests taken so far, modulo 2³².
    public var requestsTaken: UInt32 { readers.snapshot.taken }

    public var hasEnded: Bool { ended.load(ordering: .acquiring) }

    /// Waits until the kernel has ended the connection. For one thread.
    public func waitUntilEnded() {
        while !hasEnded { endings.wait() }
    }
}

/// Zeroed counters, never freed.
///
/// calloc: the kernel provides untouched zero pages, and an atomic counter begins as zero.
private func zeroed(_ count: Int) -> UnsafeMutablePointer<Atomic<UInt64>> {
    calloc(count, MemoryLayout<Atomic<UInt64>>.stride)!.bindMemory(to: Atomic<UInt64>.self, capacity: count)
}

/// The data that the library passes to every operation: our settings, and the file system.
struct SessionContext {
    let options: SessionOptions
    let state: UnsafeMutableRawPointer
    /// The kernel's offer in FUSE_INIT.
    ///
    /// The reply to FUSE_INIT is sent on the thread that wrote this.
    var offered: UInt64 = 0
    /// The descriptor of requests and replies. Written once, before there are workers.
    var descriptor: Int32 = -1
    /// Whether the kernel can resend unanswered requests (FUSE_NOTIFY_RESEND).
    ///
    /// Written with `offered`, and false before that.
    var canResend = false
    /// The journal of parked requests, if the kernel cannot resend and a next daemon follows.
    ///
    /// Written with `canResend`.
    var journal: RequestJournal?
    /// The FUSE_INIT exchange as received and answered, written on the same thread.
    var negotiation = Negotiation()
    /// Replies stay here, because the kernel has already received them.
    var isReplaying = false
    /// The protocol's minor version.
    ///
    /// Written with the reply to FUSE_INIT, before any other request.
    var kernelProtocol: UInt32 = 0

    /// Whether files opened past the cache can be mapped shared.
    var mapsDirectly: Bool { options.mapsDirectly && offered & DeviceIO.mapsDirectly != 0 }
}

/// Answers FUSE_INIT: requests only the features that grantfs needs.
///
/// Library defaults have no effect. These features stay off:
/// - FUSE_CAP_READDIRPLUS_AUTO: the kernel would ask for attributes only with the first part of a
///   listing, unless a lookup came in between. The daemon knows better whether programs use them.
/// - FUSE_CAP_ASYNC_DIO: the kernel drops cached data when an asynchronous write past the cache
///   begins, and not when it has ended (fs/fuse/file.c, fuse_direct_IO and fuse_aio_complete). A
///   read in between would put old pages there that stay.
/// - FUSE_CAP_EXPORT_SUPPORT: a handle must not reach a node that the kernel has forgotten.
/// - FUSE_CAP_ATOMIC_O_TRUNC: truncation comes as SETATTR, with all its flags.
/// - FUSE_CAP_HANDLE_KILLPRIV: it does not tell which callers may keep set-id bits. `DeviceIO`
///   requests its second version.
private func configure(_ connection: UnsafeMutablePointer<fuse_conn_info>, as options: SessionOptions) {
    var wanted =
        FUSE_CAP_ASYNC_READ | FUSE_CAP_PARALLEL_DIROPS
        | FUSE_CAP_READDIRPLUS | FUSE_CAP_POSIX_ACL | FUSE_CAP_DONT_MASK | FUSE_CAP_CACHE_SYMLINKS
        | FUSE_CAP_EXPIRE_ONLY | FUSE_CAP_IOCTL_DIR
    // The doc comment gives the reason for each feature that is absent here.
    if options.forwardsLocks { wanted |= FUSE_CAP_POSIX_LOCKS | FUSE_CAP_FLOCK_LOCKS }
    if options.writeBack { wanted |= FUSE_CAP_WRITEBACK_CACHE }
    if options.checkData { wanted |= FUSE_CAP_AUTO_INVAL_DATA }
    cfuse3_want(connection, UInt64(truncatingIfNeeded: wanted))
    connection.pointee.max_write = 1 << 20
    connection.pointee.max_readahead = 1 << 20
    // As many as can be parked: hung readaheads of one grant, at most half, must not stop the
    // others. Unprivileged mounts get fewer if memory is small (fs/fuse/inode.c, max_user_bgreq).
    connection.pointee.max_background = UInt32(clamping: ParkedRequests.maxBytes / ParkedRequests.overhead)
    connection.pointee.congestion_threshold = connection.pointee.max_background / 4 * 3
    connection.pointee.time_gran = 1
}
