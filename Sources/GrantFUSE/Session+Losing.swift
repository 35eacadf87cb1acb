import CGrantSystem
import Glibc
import Synchronization

// Survives traps of workers (bugs of this program): such a worker is lost alone, like one that
// hangs in a system call, and its caller gets EIO. See docs/decisions/requests.md.
extension Session {
    /// How many workers of the process are lost.
    public static var lostWorkers: Int { lost.load(ordering: .relaxed) }

    /// The limit of lost workers. The others suffice to serve.
    private static let mostLost = 256

    /// Makes a trap stop only its worker, from now on.
    ///
    /// The worker's slot stays taken and its descriptors stay pinned. If it holds a lock for which
    /// others would wait, or if too many workers are lost, the process ends.
    static func surviveTraps() {
        // Touched in advance: nothing may be initialized for the first time while a thread traps.
        guard lost.load(ordering: .relaxed) == 0 else { return }
        _ = clinux_trap_install { Session.loseWorker() }
    }

    /// Answers the request of a thread that trapped and holds no lock.
    ///
    /// Returns whether the thread may be parked. Takes no lock, no memory and no reference, because
    /// the thread was interrupted in the middle of its work.
    private static func loseWorker() -> Bool {
        guard let worker = clinux_worker()?.assumingMemoryBound(to: Worker.self), worker.pointee.isServing.load(ordering: .relaxed),
            lost.wrappingAdd(1, ordering: .relaxed).oldValue < mostLost
        else { return false }
        worker.pointee.answerLost()
        worker.pointee.recordEnd()
        worker.pointee.activity.store(.none, ordering: .relaxed)
        return true
    }
}

private let lost = Atomic<Int>(0)

extension Worker {
    /// Answers the worker's request with EIO if it is open.
    ///
    /// It bypasses the library, whose memory for the request is leaked.
    fileprivate func answerLost() {
        let seen = answer.load(ordering: .sequentiallyConsistent)
        // Even: answered, or taken by another thread.
        guard seen & 1 == 1, claim(seen >> 1), let head = UnsafeRawPointer(bitPattern: message.load(ordering: .relaxed)) else { return }
        var header: (UInt32, Int32, UInt64) = (16, -EIO, head.loadUnaligned(fromByteOffset: 8, as: UInt64.self))
        _ = write(descriptor, &header, 16)
    }
}
