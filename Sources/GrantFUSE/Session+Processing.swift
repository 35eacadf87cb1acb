import CGrantFUSE
import CGrantSystem
import Glibc
import GrantSystem

extension Session {
    /// Serves a request that a worker received into `buffer`, on the worker's thread.
    ///
    /// An incomplete request fails with EIO.
    @inline(__always)
    func process(_ message: Message, _ buffer: inout fuse_buf, on worker: UnsafeMutablePointer<Worker>) {
        guard message.isComplete else { return refuse(message) }
        if message.isResent, !mayReplay(message) {
            refuse(message)
            return invalidateSubjects(of: [message.copy])
        }
        worker.pointee.recordStart(message)
        Message.translateOpcode(buffer, message.opcode)
        worker.pointee.isServing.store(true, ordering: .relaxed)
        fuse_session_process_buf(pointer, &buffer)
        worker.pointee.isServing.store(false, ordering: .relaxed)
        worker.pointee.recordEnd()
    }

    @inline(never)
    private func refuse(_ message: Message) {
        // struct fuse_out_header
        var header: (UInt32, Int32, UInt64) = (16, -EIO, message.unique)
        if message.needsReply { _ = write(fuse_session_fd(pointer), &header, 16) }
    }

    /// Records the first request of a connection before it is decoded.
    ///
    /// Never inlined: it allocates, and no other request does that.
    @inline(never)
    func recordInit(_ message: Message) {
        context.pointee.offered = message.offered
        context.pointee.negotiation.request = message.copy
        // For tests: simulates an older kernel.
        context.pointee.canResend = message.offered & Message.resendOffered != 0 && !InjectedFault.noResend.isPresent
        if let page = context.pointee.options.supervised, !context.pointee.canResend { context.pointee.journal = RequestJournal(page) }
    }

    // MARK: without a mount

    /// Serves one message on the calling thread as a worker would.
    ///
    /// For a session without a mount (`init(exchange:)`), which has no workers. Returns when the
    /// message is served. Replies go to the session's descriptor. For one thread.
    ///
    /// `message` has room for `Worker.bufferSize` bytes, of which `count` were received. It is
    /// changed.
    package func serve(message: UnsafeMutableRawPointer, count: Int) {
        let worker = workers
        clinux_set_worker(worker)
        var buffer = fuse_buf()
        buffer.mem = message
        buffer.size = count
        let view = Message(buffer, Int32(clamping: count))
        worker.pointee.message.store(UInt(bitPattern: message), ordering: .relaxed)
        if view.opcode == Message.Opcode.interrupt, interruptParked(view.interrupted) { return }
        _ = worker.pointee.countRequest(view)
        if view.opcode == Message.Opcode.initialize { recordInit(view) }
        process(view, &buffer, on: worker)
    }
}
