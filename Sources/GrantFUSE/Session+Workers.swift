import CGrantFUSE
import CGrantSystem
import Glibc
import GrantSystem
import Synchronization

extension Session {
    /// Starts a worker unless all slots are taken. Returns false if it could not be started.
    ///
    /// Locking: takes `slots` for a moment.
    @discardableResult
    func startWorker(_ task: WorkerTask = .reading) -> Bool {
        guard let slot = slots.withLock({ $0.take() }) else { return false }
        guard makeRoom(slot) else {
            slots.withLock { $0.releaseUnused(slot) }
            return false
        }
        let start = UnsafeMutablePointer<WorkerStart>.allocate(capacity: 1)
        start.initialize(to: WorkerStart(session: self, worker: workers + slot, task: task))
        if task.reads { readers.began() }
        var thread = pthread_t()
        var attributes = pthread_attr_t()
        pthread_attr_init(&attributes)
        pthread_attr_setdetachstate(&attributes, Int32(truncatingIfNeeded: PTHREAD_CREATE_DETACHED))
        pthread_attr_setstacksize(&attributes, 512 << 10)
        let result = pthread_create(&thread, &attributes, workerMain, start)
        pthread_attr_destroy(&attributes)
        if result != 0 {
            if task.reads { readers.ended() }
            start.deinitialize(count: 1)
            start.deallocate()
            slots.withLock { $0.releaseUnused(slot) }
            return false
        }
        slots.withLock { $0.workerStarted() }
        return true
    }

    /// Makes a worker's buffer readable and writable permanently. False without memory.
    func makeRoom(_ slot: Int) -> Bool { mprotect((workers + slot).pointee.buffer, Worker.bufferSize, PROT_READ | PROT_WRITE) == 0 }

    /// How many workers exist or can be made now.
    ///
    /// When threads have run out, these are only the guaranteed ones (`WorkerSlots.guaranteed`)
    /// less a margin. The margin is half of the idle readers, which may take requests of any grant
    /// before the next check, and the last workers, which are for grants without a worker.
    public var availableWorkers: Int {
        guard let guaranteed = slots.withLock({ $0.guaranteed }) else { return workerLimit }
        return guaranteed - ReaderPool.reserveForResumed - Int(truncatingIfNeeded: readers.snapshot.idle / 2) - max(2, guaranteed / 5)
    }

    /// Receives and serves requests until the connection ends or this worker is no longer needed.
    func serve(_ worker: UnsafeMutablePointer<Worker>, standsBy: Bool) {
        clinux_set_worker(worker)
        begin(worker)
        var buffer = fuse_buf()
        if standsBy {
            if !standBy(worker, &buffer) { return finish(worker, &buffer) }
            if hasRunnable { serveReady(worker) }
        }
        readers.beginWaiting()
        while true {
            worker.pointee.activity.store(.receiving, ordering: .relaxed)
            if isPausing.load(ordering: .relaxed) {
                waitOutPause(worker)
                continue
            }
            let received = receive(worker, &buffer)
            worker.pointee.activity.store(.busy, ordering: .relaxed)
            if received == -EINTR || received == -EAGAIN { continue }
            // The library had no memory for its buffer, which it allocates on demand: not the end
            // of the connection.
            if received == -ENOMEM {
                usleep(10_000)
                continue
            }
            if received <= 0 { break }
            let others = readers.tookRequest()
            let message = Message(buffer, received)
            // `tookRequest` lies between the store above and this load: see `pause`.
            if isPausing.load(ordering: .sequentiallyConsistent), message.opcode != Message.Opcode.initialize {
                deferMessage(message, buffer)
                readers.beginWaiting()
                continue
            }
            // The reserve is for the monitor, which first checks the other workers.
            if others == 0, message.mayTakeLong { _ = readers.wakeOne(leaving: ReaderPool.reserve) || startWorker() }
            worker.pointee.message.store(UInt(bitPattern: buffer.mem), ordering: .relaxed)
            if message.opcode == Message.Opcode.interrupt, interruptParked(message.interrupted) {
                readers.beginWaiting()
                continue
            }
            let timed = worker.pointee.countRequest(message)
            let began = timed >= 0 ? Clock.monotonic : 0
            if message.opcode == Message.Opcode.initialize { recordInit(message) }
            process(message, &buffer, on: worker)
            if timed >= 0 { worker.pointee.recordLatency(nanoseconds: Clock.monotonic &- began, of: timed) }
            if fuse_session_exited(pointer) != 0 { break }
            if runnablePending.load(ordering: .relaxed), runnablePending.exchange(false, ordering: .relaxed) { serveReady(worker) }
            if readers.shouldStandBy() {
                if !standBy(worker, &buffer) { return finish(worker, &buffer) }
                // It may have been woken for that.
                if hasRunnable { serveReady(worker) }
            }
            readers.beginWaiting()
        }
        // The kernel has ended the connection for all workers: the others get here as they wake.
        ended.store(true, ordering: .releasing)
        endings.post()
        wakeAll()
        readers.ended()
        finish(worker, &buffer)
    }

    /// Goes on standby (`ReaderPool.standBy`).
    ///
    /// A worker that is not woken for long needs no memory: a megabyte each for requests and
    /// replies.
    private func standBy(_ worker: UnsafeMutablePointer<Worker>, _ buffer: inout fuse_buf) -> Bool {
        worker.pointee.activity.store(.idle, ordering: .relaxed)
        defer { worker.pointee.activity.store(.busy, ordering: .sequentiallyConsistent) }
        return readers.standBy { releaseMemory(worker, &buffer) }
    }

    private func releaseMemory(_ worker: UnsafeMutablePointer<Worker>, _ buffer: inout fuse_buf) {
        // The library allocates a new one when it has none.
        free(buffer.mem)
        buffer.mem = nil
        worker.pointee.releaseBuffer()
    }

    func finish(_ worker: UnsafeMutablePointer<Worker>, _ buffer: inout fuse_buf) {
        releaseMemory(worker, &buffer)
        clinux_set_worker(nil)
        worker.pointee.thread.store(0, ordering: .relaxed)
        worker.pointee.activity.store(.none, ordering: .releasing)
        let slot = worker.pointee.slot
        slots.withLock { $0.release(slot) }
    }
}

private struct WorkerStart {
    let session: Session
    let worker: UnsafeMutablePointer<Worker>
    let task: WorkerTask
}

/// The task of a worker.
enum WorkerTask {
    case reading
    /// Reading, when it is woken.
    case standby
    /// Serves resumed requests, then ends.
    case resuming
    /// Serves resumed requests whenever no other worker can be made.
    case resumingAlways

    var reads: Bool { self == .reading || self == .standby }
}

private func workerMain(_ argument: UnsafeMutableRawPointer?) -> UnsafeMutableRawPointer? {
    let start = argument!.assumingMemoryBound(to: WorkerStart.self)
    let (session, worker) = (start.pointee.session, start.pointee.worker)
    let task = start.pointee.task
    start.deinitialize(count: 1)
    start.deallocate()
    _ = clinux_set_thread_name("grantfs-worker")
    Identity.resetOnThisThread()
    clinux_trap_allow()
    if task.reads {
        session.serve(worker, standsBy: task == .standby)
    } else {
        session.serveResumed(worker, always: task == .resumingAlways)
    }
    return nil
}
